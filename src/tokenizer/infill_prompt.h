// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a text with a hole, as llama.cpp's server lays them out. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "longspec/infill.h"
#include "longspec/status.h"
#include "tokenizer/tokenizer.h"

namespace longspec {

//   [REPOSITORY] "myproject\n"
//   ([SEPARATOR] filename "\n" text) for each chunk
//   [SEPARATOR] "filename\n"
//   [BOS] [PREFIX] prefix prompt [SUFFIX] suffix [MIDDLE]
//
// Before the BOS are the last tokens that there is room for. A model without a separator has a line of text
// before each chunk in its place, and none before the prefix; each piece is made tokens by itself.
// kUnsupported: the vocabulary lacks the token of a prefix, a suffix or a middle; the message says which.
Result<std::vector<int32_t>> InfillPrompt(const Tokenizer& tokenizer, const InfillText& text,
                                          const InfillLayout& layout);

}  // namespace longspec
