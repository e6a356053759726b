// SPDX-License-Identifier: Apache-2.0
//
// Calls as Mistral's models write them, behind a control token that is part of the text. A list of them, or,
// by models of 2025, each by itself:
//
//   [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "a1B2c3D4e"}]
//   [TOOL_CALLS]f[ARGS]{...}
//
// Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "chat/tools.h"
#include "longspec/generation.h"

namespace longspec::chat {

inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]", kMistralId = "[CALL_ID]",
                                  kMistralArguments = "[ARGS]";

constexpr bool IsMistrals(ToolFormat format) {
  return format == ToolFormat::kMistralList || format == ToolFormat::kMistral;
}

// The templates of these models know only ids of nine letters and digits: others, of calls and of their
// results, become such; where they are missing, results are those of the calls in their order.
void ShortenIds(std::vector<Message>& messages);

}  // namespace longspec::chat
