// SPDX-License-Identifier: Apache-2.0
//
// The prompts of text completions.
#pragma once

#include "api/fields.h"
#include "api/request.h"

namespace longspec::api {

inline constexpr size_t kMostPrompts = 1024;  // of one request
inline constexpr int kMostAnswers = 4096;     // to all of them

// A text; a list of token numbers, among which there may be texts; {"prompt_string": "a text"}: one prompt.
// Any other list of these: several. One that is all text or all numbers becomes the generation's.
void ParsePrompts(Fields& fields, Request* request);

}  // namespace longspec::api
