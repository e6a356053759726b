// SPDX-License-Identifier: Apache-2.0
//
// Prompts of models that suggest an editor's next edit: Sweep's, and those of Zed's Zeta. The answer is a
// region of the text that is edited, written again with a few changes. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace longspec::openai {

// The answer, if nothing is changed. Nothing: the prompt has none of these forms.
std::optional<std::string> UneditedRegion(std::string_view prompt);

}  // namespace longspec::openai
