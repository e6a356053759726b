// SPDX-License-Identifier: Apache-2.0
#include "openai/messages.h"

#include <optional>
#include <string>
#include <utility>

#include "openai/fields.h"
#include "openai/json.h"
#include "openai/tools.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

void ParseRole(Fields& fields, Message* message) {
  if (!fields.Text("role", &message->role)) fields.Missing("role");
  if (message->role == "developer") message->role = "system";
  if (message->role == "system" || message->role == "user" || message->role == "assistant" ||
      message->role == "tool")
    return;
  const bool known = message->role == "function";
  fields.Fail("role",
              known ? "\"" + message->role + "\" is not supported"
                    : "must be system, developer, user, assistant or tool",
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
  message->more = DumpJson(more);
}

std::optional<ApiError> ParseMessage(const Json& json, const std::string& place, Message* message) {
  Fields fields(json, place);
  ParseRole(fields, message);
  ParseContent(fields, message);
  ParseToolMembers(fields, message);
  ParseReasoning(fields, message);
  fields.Only("function_call", "[]");
  fields.Only("audio", "[]");
  fields.Only("images", "[[]]", "messages are texts");
  return fields.error();
}

}  // namespace

void ParseTextContent(Fields& fields, std::string_view name, std::string* content) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return fields.Missing(name);
  if (!value->is_array()) {
    fields.Text(name, content);
    return;
  }
  for (size_t i = 0; i < value->size() && !fields.error(); ++i)
    ParsePart((*value)[i], fields.PlaceOf(std::string(name) + "[" + std::to_string(i) + "]"), fields,
              content);
}

std::variant<std::vector<Message>, ApiError> ParseMessages(const Json& messages) {
  if (!messages.is_array()) {
    return ApiError{.message = "messages must be a list, not " + Describe(messages),
                    .param = "messages",
                    .code = "invalid_type"};
  }
  if (messages.empty())
    return ApiError{.message = "messages must not be empty", .param = "messages", .code = "invalid_value"};
  std::vector<Message> parsed(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    auto error = ParseMessage(messages[i], "messages[" + std::to_string(i) + "]", &parsed[i]);
    if (error) return *std::move(error);
  }
  return parsed;
}

}  // namespace longspec::openai
