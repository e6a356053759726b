// SPDX-License-Identifier: Apache-2.0
//
// How a model writes what is more than words, its thoughts and its calls of tools, as its chat template shows
// it. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/thinking.h"
#include "chat/tools.h"

namespace longspec::chat {

struct Dialect {
  ToolFormat tools = ToolFormat::kGeneric;
  std::optional<ThinkingTags> thinking = {};  // nothing: it does not think between tags
  bool thoughts_in_contents = false;          // where its template looks for those of earlier messages

  bool has_channels() const { return tools == ToolFormat::kHarmony; }
  bool thinks() const { return thinking.has_value() || has_channels(); }
};

// By the chat template's source.
Dialect DialectOf(std::string_view chat_template);

// The prompt of an answer that is not to think. A template that knows `enable_thinking` has seen to it,
// unless it begins a thought whatever it is told: that is ended. Behind any other one the answer begins with
// a thought that is empty, which is how templates that know it say so.
std::string WithoutThought(std::string_view chat_template, std::string prompt);

}  // namespace longspec::chat
