// SPDX-License-Identifier: Apache-2.0
//
// Where the thoughts of answers go, as requests say it, and how an answer is read for that.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "chat/answer_reader.h"
#include "chat/dialect.h"

namespace longspec::openai {

class Fields;
struct ApiRequest;

enum class ThoughtsPlace : uint8_t {
  kAuto,       // apart from what is said, if the model is known to think
  kApart,      // apart, if it thinks
  kInContent,  // they stay in the text
  kNowhere     // they are left out, if the model is known to think
};

// What reasoning_format says: auto, none or deepseek. Nothing: there is no such format.
std::optional<ThoughtsPlace> ThoughtsPlaceOf(std::string_view format);
// reasoning_format of llama.cpp, include_reasoning of vLLM, separate_reasoning of SGLang; `otherwise`, if a
// request says none of these.
ThoughtsPlace ParseThoughtsPlace(Fields& fields, ThoughtsPlace otherwise);

// How the answer to a chat is read, whose request still has its messages and whose tools were applied, behind
// a prompt of which `prompt_end` is the end, at least kPromptEndTokens of it. What form the answer is to have
// is then asked of what is said, and what is thought before it is free.
inline constexpr size_t kPromptEndTokens = 32;
chat::ReadingForm ReadingFormOf(const chat::Dialect& dialect, std::string_view prompt_end,
                                ApiRequest* request);
// Its part about thoughts between tags. Nothing: there are none.
std::optional<chat::ThinkingForm> ThinkingFormOf(const std::optional<chat::ThinkingTags>& model,
                                                 std::string_view prompt_end, ApiRequest* request);

}  // namespace longspec::openai
