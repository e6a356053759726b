// SPDX-License-Identifier: Apache-2.0
//
// The fields of a chat that say how its template is applied: where the prompt ends, and what the template is
// told besides the messages; and where the thoughts of its answer go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/fields.h"
#include "api/request.h"
#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec::api {

// What is asked of a model's thinking. Templates that ask for it know it by several names.
struct ThinkingWish {
  std::optional<bool> thinks = {};     // before it speaks
  std::optional<bool> remembers = {};  // what it thought in all earlier turns
  std::string effort = {};             // empty: nothing is asked; "none": it does not think
};
// `variables`, the text of an object or nothing, with those of the wish in the place of its own. What
// `variables` says of thinking counts more than an effort of "none".
std::string WithThinking(std::string variables, const ThinkingWish& wish);

// add_generation_prompt and continue_final_message mean what they do in vLLM; where neither is given, a last
// message of the assistant's is gone on with, as llama.cpp does it. chat_template_kwargs, enable_thinking,
// thinking, reasoning_effort and documents become variables, besides those that the request has already and
// that none of these set. REQUIRES: the messages have been read.
void ParseTemplateFields(Fields& fields, GenerationRequest* request);

// {"type": "enabled", "adaptive" or "disabled"} of the field `thinking`, as enable_thinking; nothing if it is
// not there.
std::optional<bool> ParseThinking(Fields& fields);

// Variables for all chats, the text of an object as chat_template_kwargs has it, but for what is of one
// chat's end. The error begins with the name of what is wrong in it.
Result<std::string> ReadTemplateVariables(std::string_view text);

// What reasoning_format says: auto, none or deepseek. Nothing: there is no such format.
std::optional<ThoughtsPlace> ThoughtsPlaceOf(std::string_view format);
// reasoning_format of llama.cpp, include_reasoning of vLLM, separate_reasoning of SGLang; `otherwise`, if a
// request says none of these.
ThoughtsPlace ParseThoughtsPlace(Fields& fields, ThoughtsPlace otherwise);

}  // namespace longspec::api
