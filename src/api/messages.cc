// SPDX-License-Identifier: Apache-2.0
#include "api/messages.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "api/fields.h"
#include "api/tools.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

// Of the field `name`.
void CheckRole(Fields& fields, const std::string& name, std::string* role) {
  if (*role == "developer") *role = "system";
  if (*role == "system" || *role == "user" || *role == "assistant" || *role == "tool") return;
  const bool known = *role == "function";
  fields.Fail(
      name,
      known ? "\"" + *role + "\" is not supported" : "must be system, developer, user, assistant or tool",
      known ? "unsupported_value" : "invalid_value");
}

// The text of a part, appended.
void ParsePart(const Json& part, const std::string& place, Fields& message, std::string* content) {
  Fields fields(part, place);
  std::string type, text;
  if (!fields.Text("type", &type)) fields.Missing("type");
  if (!type.empty() && type != "text")
    fields.Fail("type", "is not supported: only parts of type \"text\" are", "unsupported_value");
  if (!fields.Text("text", &text)) fields.Missing("text");
  if (fields.error()) return message.Fail(*fields.error());
  if (!content->empty()) *content += '\n';
  *content += text;
}

// An assistant's may be null.
void ParseContent(Fields& fields, Message* message) {
  if (fields.Find("content") == nullptr && message->role == "assistant") return;
  ParseTextContent(fields, "content", &message->content);
}

// What the assistant thought before it spoke, under the names that servers, clients and templates have for
// it.
void ParseReasoning(Fields& fields, Message* message) {
  Json more = Json::object();
  std::string text;
  for (const char* name : {"reasoning", "reasoning_content"}) {
    const Json* value = fields.Find(name);
    if (message->role != "assistant" || value == nullptr) continue;
    if (fields.Text(name, &text)) more["reasoning"] = more["reasoning_content"] = text;
  }
  if (message->role == "assistant" && fields.Text("thinking", &text)) more["thinking"] = text;
  if (more.empty() || fields.error()) return;
  if (!message->more.empty()) more.update(LoadJson(message->more));
  message->more = WriteJson(more);
}

std::optional<Error> ParseMessage(const Json& json, const std::string& place, Message* message) {
  Fields fields(json, place);
  if (!fields.Text("role", &message->role)) fields.Missing("role");
  CheckRole(fields, "role", &message->role);
  ParseContent(fields, message);
  ParseToolMembers(fields, message);
  ParseReasoning(fields, message);
  fields.Only("function_call", "[]");
  fields.Only("audio", "[]");
  fields.Only("images", "[[]]", "messages are texts");
  return fields.error();
}

}  // namespace

void ParseTextContent(Fields& fields, std::string_view name, std::string* content, size_t first) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return fields.Missing(name);
  if (!value->is_array()) {
    fields.Text(name, content);
    return;
  }
  for (size_t i = first; i < value->size() && !fields.error(); ++i)
    ParsePart((*value)[i], fields.PlaceOf(std::string(name) + "[" + std::to_string(i) + "]"), fields,
              content);
}

std::vector<Message> ParseMessages(Fields& fields) {
  const Json* list = fields.Find("messages");
  std::vector<Message> messages;
  if (list == nullptr) {
    fields.Missing("messages");
  } else if (!list->is_array()) {
    fields.Fail("messages", "must be a list, not " + Describe(*list), "invalid_type");
  } else if (list->empty()) {
    fields.Fail("messages", "must not be empty", "invalid_value");
  } else {
    messages.resize(list->size());
  }
  for (size_t i = 0; i < messages.size() && !fields.error(); ++i) {
    auto error = ParseMessage((*list)[i], "messages[" + std::to_string(i) + "]", &messages[i]);
    if (error) fields.Fail(*std::move(error));
  }
  return messages;
}

void ChatTurns::Say(const std::string& role, std::string text) {
  if (std::exchange(only_thought_, false) && role == "assistant") {
    turns_.back().text = std::move(text);
  } else {
    turns_.push_back({.role = role, .text = std::move(text)});
  }
}

void ChatTurns::Think(const std::string& text) {
  if (!only_thought_) {
    Say("assistant", "");
    turns_.back().thought = "";
    only_thought_ = true;
  }
  *turns_.back().thought += text;
}

void ChatTurns::Call(std::string id, std::string name, std::string arguments) {
  if (turns_.empty() || turns_.back().role != "assistant") Say("assistant", "");
  only_thought_ = false;
  Json function = {{"name", std::move(name)}, {"arguments", std::move(arguments)}};
  turns_.back().calls.push_back(
      {{"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}});
}

void ChatTurns::Result(std::string id, std::string text) {
  only_thought_ = false;
  turns_.push_back({.role = "tool", .text = std::move(text), .call_id = std::move(id)});
}

std::vector<Message> ChatTurns::Take(Fields& fields) {
  std::vector<Message> messages(turns_.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    Turn& turn = turns_[i];
    Message& message = messages[i];
    message = {.role = std::move(turn.role), .content = std::move(turn.text)};
    CheckRole(fields, "messages[" + std::to_string(i) + "].role", &message.role);
    Json more = Json::object();
    if (turn.thought) more["reasoning"] = more["reasoning_content"] = std::move(*turn.thought);
    if (turn.call_id) more["tool_call_id"] = std::move(*turn.call_id);
    if (!turn.calls.is_null()) more["tool_calls"] = std::move(turn.calls);
    if (!more.empty()) message.more = WriteJson(more);
  }
  turns_.clear();
  only_thought_ = false;
  return messages;
}

}  // namespace longspec::api
