// SPDX-License-Identifier: Apache-2.0
#include "engine/template_variables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

// What stands between the braces of an object, as it was written: numbers of any size stay what they are.
std::optional<std::string> MembersOf(std::string_view object) {
  const size_t begin = object.find('{');
  if (begin == std::string_view::npos || !Json::accept(object) || !Json::parse(object).is_object())
    return std::nullopt;
  return std::string(object.substr(begin + 1, object.rfind('}') - begin - 1));
}

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Of two equal keys the second counts.
std::string Joined(const std::string& members, const std::string& more) {
  if (IsBlank(members)) return more;
  return IsBlank(more) ? members : members + ", " + more;
}

// Contents are any bytes; a template works on text.
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<std::string> TemplateVariables(const std::vector<Message>& messages, std::string_view variables) {
  if (std::ranges::all_of(messages, [](const Message& message) { return message.more.empty(); }))
    return std::string(variables);
  const auto given = MembersOf(variables.empty() ? "{}" : variables);
  if (!given) return InvalidArgument("template_variables must be an object of JSON");
  if (!variables.empty() && Json::parse(variables).contains("messages")) return std::string(variables);
  std::string list;
  for (const Message& message : messages) {
    const auto more = MembersOf(message.more.empty() ? "{}" : message.more);
    if (!more) return InvalidArgument("what a message has more must be an object of JSON");
    const std::string said =
        "\"role\": " + Quoted(message.role) + ", \"content\": " + Quoted(message.content);
    list += (list.empty() ? "{" : ", {") + Joined(said, *more) + "}";
  }
  return "{" + Joined(*given, "\"messages\": [" + list + "]") + "}";
}

}  // namespace longspec
