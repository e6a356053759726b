// SPDX-License-Identifier: Apache-2.0
#include "chat/dialect.h"

#include <utility>

#include "chat/channels.h"
#include "chat/tool_form.h"

namespace longspec::chat {

Dialect DialectOf(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  Dialect dialect = {.tools = ToolFormatOf(chat_template)};
  if (dialect.has_channels()) return dialect;
  dialect.thinking = ThinkingTagsOf(chat_template);
  dialect.thoughts_in_contents =
      dialect.thinking && (has("'thinking'") || has("\"thinking\"")) && !has("reasoning");
  return dialect;
}

std::string WithoutThought(std::string_view chat_template, std::string prompt) {
  const Dialect dialect = DialectOf(chat_template);
  if (dialect.has_channels()) return WithEmptyAnalysis(std::move(prompt));
  if (!dialect.thinking) return prompt;
  const bool is_told = chat_template.find("enable_thinking") != std::string_view::npos;
  const bool is_begun = ThoughtAt(*dialect.thinking, prompt, {}) == ThoughtState::kBegun;
  return is_told && !is_begun ? prompt : WithThoughtEnded(*dialect.thinking, std::move(prompt));
}

}  // namespace longspec::chat
