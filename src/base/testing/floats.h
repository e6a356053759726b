// SPDX-License-Identifier: Apache-2.0
//
// Floats that are no numbers, for tests.
#pragma once

#include <limits>

namespace longspec::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace longspec::testing
