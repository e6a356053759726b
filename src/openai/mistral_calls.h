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

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "longspec/generation.h"
#include "openai/tools.h"

namespace longspec::openai {

inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]", kMistralId = "[CALL_ID]",
                                  kMistralArguments = "[ARGS]";

constexpr bool IsMistrals(ToolFormat format) {
  return format == ToolFormat::kMistralList || format == ToolFormat::kMistral;
}

// Tags of xgrammar that kMistralCalls triggers.
nlohmann::ordered_json MistralCallTags(ToolFormat format, const ToolUse& use);

// The templates of these models know only ids of nine letters and digits: others, of calls and of their
// results, become such; where they are missing, results are those of the calls in their order.
void ShortenIds(std::vector<Message>& messages);

}  // namespace longspec::openai
