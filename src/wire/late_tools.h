// SPDX-License-Identifier: Apache-2.0
//
// Tools that a model is told of in the middle of a conversation, where something speaks of them, and not
// before it begins: clients defer those that may never be needed, and add or take back others while they
// talk.
#pragma once

#include <string>
#include <vector>

#include "openai/fields.h"
#include "openai/tools.h"

namespace longspec::wire {

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
  void Join(openai::Fields& fields, chat::ToolUse* use) const;

 private:
  std::vector<chat::Tool> deferred_, announced_;
  std::vector<std::string> withdrawn_;
};

}  // namespace longspec::wire
