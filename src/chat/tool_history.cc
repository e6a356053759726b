// SPDX-License-Identifier: Apache-2.0
#include "chat/tool_history.h"

#include <string_view>
#include <variant>

#include "json/bounded_json.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOfCalls[] = {"tool_calls", "tool_call_id", "name"};

// Text that is JSON as JSON, as it was written; other text as a string.
std::string ArgumentsAsJson(const Json& arguments) {
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    if (std::holds_alternative<Json>(ReadBoundedJson(text))) return text;
  }
  return WriteJson(arguments);
}

// An object whose member `key` is what `write` makes of it.
template <typename Write>
std::string ObjectWith(const Json& object, std::string_view key, const Write& write) {
  std::string text;
  for (const auto& [name, value] : object.items()) {
    text += (text.empty() ? "{" : ",") + WriteJson(Json(name)) + ":";
    text += name == key ? write(value) : WriteJson(value);
  }
  return text.empty() ? "{}" : text + "}";
}

std::string CallsAsJson(const Json& calls) {
  std::string text;
  for (const Json& call : calls) {
    text += text.empty() ? "[" : ",";
    text += ObjectWith(call, "function", [](const Json& function) {
      return ObjectWith(function, "arguments", ArgumentsAsJson);
    });
  }
  return text.empty() ? "[]" : text + "]";
}

std::string CallsInGenericForm(const Json& calls) {
  std::string text;
  for (const Json& call : calls) {
    const Json& function = call["function"];
    text += (text.empty() ? "<tool_call>[" : ", ") + std::string("{\"name\": ") +
            WriteJson(function["name"]) + ", \"arguments\": " + ArgumentsAsJson(function["arguments"]) + "}";
  }
  return text.empty() ? text : text + "]</tool_call>";
}

}  // namespace

Json HeldCalls(const Json& tool_calls) {
  Json held = tool_calls;
  for (Json& call : held) {
    Json& arguments = call["function"]["arguments"];
    if (!arguments.is_string()) arguments = WriteJson(arguments);
  }
  return held;
}

bool IsOfCalls(const Message& message) { return !message.more.empty() || message.role == "tool"; }

void TellCalls(std::vector<Message>& messages) {
  for (Message& message : messages) {
    if (message.more.empty()) continue;
    const Json more = LoadJson(message.more);
    if (more.contains("tool_calls")) message.more = ObjectWith(more, "tool_calls", CallsAsJson);
  }
}

void SpellOutCalls(std::vector<Message>& messages) {
  for (Message& message : messages) {
    if (message.role == "tool") {
      message.role = "user";
      message.content = "<tool_response>\n" + message.content + "\n</tool_response>";
      message.more.clear();
    }
    if (message.more.empty()) continue;
    Json more = LoadJson(message.more);
    message.content += CallsInGenericForm(more.value("tool_calls", Json::array()));
    for (const char* name : kOfCalls) more.erase(name);
    message.more = more.empty() ? "" : WriteJson(more);
  }
}

}  // namespace longspec::chat
