// SPDX-License-Identifier: Apache-2.0
#include "openai/answer_parts.h"

#include <utility>
#include <variant>

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

void MovePartsOf(chat::AnswerReader reader, const std::string& id, Json* choice) {
  Json& message = (*choice)["message"];
  if (!message["content"].is_string()) return;
  std::string content, thoughts;
  Json calls = Json::array();
  for (const auto& part : reader.ReadWhole(message["content"].get_ref<const std::string&>())) {
    if (const auto* call = std::get_if<chat::ToolCallPiece>(&part)) {
      calls.push_back(ToolCallDeltaJson(*call, id, (*choice)["index"].get<int>()));
      calls.back().erase("index");
    } else if (const auto* thought = std::get_if<chat::Thought>(&part)) {
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

Json ToolCallDeltaJson(const chat::ToolCallPiece& piece, const std::string& id, int choice) {
  Json json = {{"index", piece.index}};
  if (!piece.name.empty()) {
    json["id"] =
        "call_" + id + (choice == 0 ? "" : "_" + std::to_string(choice)) + "_" + std::to_string(piece.index);
    json["type"] = "function";
    json["function"] = {{"name", piece.name}};
  }
  json["function"]["arguments"] = piece.arguments;
  return json;
}

void MoveParts(const chat::ReadingForm& form, const std::string& id, Json* response) {
  for (Json& choice : (*response)["choices"]) MovePartsOf(chat::AnswerReader(form), id, &choice);
}

}  // namespace longspec::openai
