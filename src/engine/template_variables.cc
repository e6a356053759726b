// SPDX-License-Identifier: Apache-2.0
#include "engine/template_variables.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace longspec {

Result<std::string> TemplateVariables(const std::vector<Message>& messages, std::string_view variables) {
  using Json = nlohmann::ordered_json;
  if (std::ranges::all_of(messages, [](const Message& message) { return message.more.empty(); }))
    return std::string(variables);
  Json all = variables.empty() ? Json::object() : Json::parse(variables, nullptr, false);
  if (!all.is_object()) return InvalidArgument("template_variables must be an object of JSON");
  if (!all.contains("messages")) {
    Json list = Json::array();
    for (const Message& message : messages) {
      const Json more = message.more.empty() ? Json::object() : Json::parse(message.more, nullptr, false);
      if (!more.is_object()) return InvalidArgument("what a message has more must be an object of JSON");
      list.push_back({{"role", message.role}, {"content", message.content}});
      list.back().update(more);
    }
    all["messages"] = std::move(list);
  }
  // Contents are any bytes; a template works on text.
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace longspec
