// SPDX-License-Identifier: Apache-2.0
//
// Where the window before a hole begins. A window of the last N tokens begins at another token after every
// line that is written, and everything behind its beginning has to be evaluated again. An anchored window
// begins at a line that its content chooses, which stays the same while the text grows: a function of the
// text alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace longspec {

// The place in `prefix`, whose tokens these are, of the line to begin with: among the lines from which on
// there are half of `most` tokens to `most`, one that is not indented if there is any, with the least hash of
// itself and the next line. 0 where all fits; nothing where no line begins there.
std::optional<size_t> InfillAnchor(const Tokenizer& tokenizer, std::string_view prefix,
                                   const std::vector<int32_t>& tokens, int64_t most);

}  // namespace longspec
