// SPDX-License-Identifier: Apache-2.0
#include "api/prompt_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "api/fields.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

void AddToken(const Json& token, Fields& fields, Prompt* prompt) {
  const auto id = WholeNumber(token);
  if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
    return fields.Fail("prompt",
                       "must be texts and token numbers, with nothing else in it, not " + Describe(token),
                       "invalid_type");
  }
  if (prompt->empty() || prompt->back().tokens.empty()) prompt->emplace_back();
  prompt->back().tokens.push_back(static_cast<int32_t>(*id));
}

void AddText(const Json& text, Prompt* prompt) {
  if (const auto& own = text.get_ref<const std::string&>(); !own.empty())
    prompt->push_back({.text = own, .tokens = {}});
}

Prompt ParseOne(const Json& value, Fields& fields) {
  Prompt prompt;
  if (value.is_string()) {
    AddText(value, &prompt);
  } else if (value.is_array()) {
    for (const Json& part : value) {
      if (part.is_string()) {
        AddText(part, &prompt);
      } else {
        AddToken(part, fields, &prompt);
      }
      if (fields.error()) return prompt;
    }
  } else if (value.is_object()) {
    if (value.contains("multimodal_data"))
      fields.Fail("prompt.multimodal_data", "is not supported", "unsupported_value");
    const auto text = value.find("prompt_string");
    if (text == value.end() || !text->is_string()) {
      fields.Fail("prompt.prompt_string", "must be a text", "invalid_type");
    } else {
      AddText(*text, &prompt);
    }
  } else {
    fields.Fail("prompt", "must be a text or a list of token numbers, not " + Describe(value),
                "invalid_type");
  }
  if (prompt.empty()) fields.Fail("prompt", "must not be empty", "invalid_value");
  return prompt;
}

}  // namespace

void ParsePrompts(Fields& fields, Request* request) {
  const Json* value = fields.Find("prompt");
  if (value == nullptr) return fields.Missing("prompt");
  // With a number in it a list is one prompt, as llama.cpp has it.
  if (!value->is_array() || std::ranges::any_of(*value, [](const Json& part) { return part.is_number(); })) {
    request->prompts.push_back(ParseOne(*value, fields));
  } else {
    if (value->size() > kMostPrompts || static_cast<int64_t>(value->size()) * request->n > kMostAnswers) {
      return fields.Fail("prompt",
                         "must be at most " + std::to_string(kMostPrompts) + " prompts, and " +
                             std::to_string(kMostAnswers) + " answers in all",
                         "invalid_value");
    }
    if (value->empty()) fields.Fail("prompt", "must not be empty", "invalid_value");
    for (const Json& one : *value) {
      request->prompts.push_back(ParseOne(one, fields));
      if (fields.error()) return;
    }
  }
  if (fields.error() || request->prompts.size() > 1 || request->prompts[0].size() > 1) return;
  PromptPart only = std::move(request->prompts[0][0]);
  request->prompts.clear();
  request->generation.prompt = std::move(only.text);
  request->generation.tokens = std::move(only.tokens);
}

}  // namespace longspec::api
