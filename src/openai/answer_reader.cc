// SPDX-License-Identifier: Apache-2.0
#include "openai/answer_reader.h"

#include <utility>
#include <variant>

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

void MovePartsOf(AnswerReader reader, const std::string& id, Json* choice) {
  Json& message = (*choice)["message"];
  if (!message["content"].is_string()) return;
  std::string content, thoughts;
  Json calls = Json::array();
  for (const auto& part : reader.ReadWhole(message["content"].get_ref<const std::string&>())) {
    if (const auto* call = std::get_if<ToolCallPiece>(&part)) {
      calls.push_back(ToolCallDeltaJson(*call, id, (*choice)["index"].get<int>()));
      calls.back().erase("index");
    } else if (const auto* thought = std::get_if<Thought>(&part)) {
      thoughts += thought->text;
    } else {
      content += std::get<std::string>(part);
    }
  }
  message["content"] = content.empty() && !calls.empty() ? Json(nullptr) : Json(content);
  if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  Json& reason = (*choice)["finish_reason"];
  if (reader.has_whole_calls() && reason == "stop") reason = "tool_calls";
}

}  // namespace

AnswerParts AnswerReader::Push(std::string_view text) {
  ThinkingReader::Parts parts = thinking_.Push(text);
  AnswerParts said = calls_.Push(parts.text);
  return Parts(std::move(parts), std::move(said));
}

AnswerParts AnswerReader::Finish() {
  ThinkingReader::Parts parts = thinking_.Finish();
  AnswerParts said = calls_.Push(parts.text);
  for (auto& part : calls_.Finish()) said.push_back(std::move(part));
  return Parts(std::move(parts), std::move(said));
}

AnswerParts AnswerReader::ReadWhole(std::string_view text) {
  ThinkingReader::Parts parts = thinking_.Push(text);
  ThinkingReader::Parts rest = thinking_.Finish();
  parts.thought += rest.thought;
  parts.text += rest.text;
  AnswerParts said = calls_.ReadWhole(parts.text);
  return Parts(std::move(parts), std::move(said));
}

AnswerParts AnswerReader::Parts(ThinkingReader::Parts parts, AnswerParts said) const {
  if (!parts.thought.empty() && shows_thoughts_) said.insert(said.begin(), Thought{std::move(parts.thought)});
  return said;
}

void MoveParts(const ReadingForm& form, const std::string& id, Json* response) {
  for (Json& choice : (*response)["choices"]) MovePartsOf(AnswerReader(form), id, &choice);
}

}  // namespace longspec::openai
