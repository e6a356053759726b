// SPDX-License-Identifier: Apache-2.0
#include "chat/dialect.h"

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

}  // namespace longspec::chat
