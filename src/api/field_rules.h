// SPDX-License-Identifier: Apache-2.0
//
// What becomes of the fields that OpenAI, llama.cpp, vLLM, SGLang and their clients know and that nothing
// here reads: one table. What would change an answer is never passed over: it is honoured, or refused by name
// unless it says what is done anyway. Fields that no server knows are passed over, and said in the log.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"

namespace longspec::api {

enum class Treatment : uint8_t {
  kNothing,  // changes no answer: says who asks, how soon, how to be quick or for how long to keep something
  kIgnored,  // a wish that makes no answer wrong if it is not granted: taken, and said in the log
  kRefused,  // would change the answer: may only say what is done anyway
};

// APIs that have a rule, as bits.
inline constexpr uint8_t kOfChats = 1;  // also of Messages and Responses, which become chats
inline constexpr uint8_t kOfTexts = 2;  // OpenAI's text completions
inline constexpr uint8_t kOfLlama = 4;  // llama.cpp's /completion
inline constexpr uint8_t kOfPrompts = kOfTexts | kOfLlama;
inline constexpr uint8_t kOfAll = kOfChats | kOfPrompts;

struct FieldRule {
  std::string_view name;
  Treatment treatment = Treatment::kNothing;
  uint8_t apis = kOfAll;
  std::string_view allowed = "[]";  // kRefused: the JSON text of a list of what it may say
  std::string_view advice = {};     // kRefused: what would be right
};

// Where what other APIs' answers do not have is to be had.
inline constexpr std::string_view kChatsGiveAnswers = "/v1/chat/completions gives several answers",
                                  kChatsGiveChances = "/v1/chat/completions gives chances of tokens";

// Of chats and of completions.
std::span<const FieldRule> CompletionRules();

// Reads the fields of `rules` that are of `api`. What is ignored and given is added to *ignored.
void KeepRules(std::span<const FieldRule> rules, uint8_t api, Fields& fields,
               std::vector<std::string>* ignored);

}  // namespace longspec::api
