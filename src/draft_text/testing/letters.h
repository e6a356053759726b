// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace longspec::testing {

// A text whose tokens are its letters.
inline std::vector<int32_t> Letters(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace longspec::testing
