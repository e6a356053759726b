// SPDX-License-Identifier: Apache-2.0
//
// Tools that an answer may call (chat/tools.h): what a request says of them. Clients defer those that may
// never be needed, and add or take back others while they talk.
#pragma once

#include <string>
#include <vector>

#include "api/fields.h"
#include "chat/tools.h"
#include "longspec/generation.h"

namespace longspec::api {

// A function as every API describes it: name, description, strict, and its arguments' schema under the name
// `schema`.
void ParseFunction(Fields& fields, std::string_view schema, chat::Tool* tool);
// Mistakes are those of the field "tools": too many, or two of one name.
void AddTool(Fields& fields, chat::Tool tool, chat::ToolUse* use);

// tools, tool_choice and parallel_tool_calls of a chat.
void ParseTools(Fields& fields, chat::ToolUse* use);
// tool_calls, tool_call_id and name of a message, into Message::more.
void ParseToolMembers(Fields& fields, Message* message);

// Tools that a model is told of in the middle of a conversation, where something speaks of them, and not
// before it begins.
class LateTools {
 public:
  // Nobody has been told of it yet, so it cannot be called.
  void Defer(chat::Tool tool) { deferred_.push_back(std::move(tool)); }

  // What tells the model of a tool that was deferred, or is new; from here on it may be called.
  std::string Announce(const std::string& name);
  std::string Announce(chat::Tool tool);
  // What tells the model that it cannot be called any more.
  std::string Withdraw(const std::string& name);

  // Of `use`, which has those that were told of at the beginning: adds what was announced, takes out what was
  // withdrawn.
  void Join(Fields& fields, chat::ToolUse* use) const;

 private:
  std::vector<chat::Tool> deferred_, announced_;
  std::vector<std::string> withdrawn_;
};

}  // namespace longspec::api
