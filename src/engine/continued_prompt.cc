// SPDX-License-Identifier: Apache-2.0
#include "engine/continued_prompt.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

// A word that no message has.
std::string MarkFor(const std::vector<Message>& messages) {
  const auto has = [&](std::string_view mark) {
    return std::ranges::any_of(messages, [&](const Message& message) {
      return message.content.find(mark) != std::string::npos || message.more.find(mark) != std::string::npos;
    });
  };
  std::string mark = "[this-message-goes-on]";
  for (int i = 0; has(mark); ++i) mark = "[this-message-goes-on-" + std::to_string(i) + "]";
  return mark;
}

}  // namespace

Result<std::string> ContinuedPrompt(
    const std::vector<Message>& messages,
    const std::function<Result<std::string>(const std::vector<Message>&)>& render) {
  LS_CHECK(!messages.empty());
  const std::string mark = MarkFor(messages);
  std::vector<Message> marked = messages;
  marked.back().content += mark;
  LS_ASSIGN(std::string text, render(marked));
  const size_t end = text.rfind(mark);
  if (end == std::string::npos) {
    return Unsupported(
        "the chat template does not show the last message, so nothing can go on with it: with "
        "continue_final_message false a new one begins");
  }
  text.resize(end);
  return text;
}

}  // namespace longspec
