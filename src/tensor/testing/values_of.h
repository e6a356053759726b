// SPDX-License-Identifier: Apache-2.0
//
// For tests: what rows of states hold.
#pragma once

#include <cstddef>
#include <vector>

#include "tensor/state_rows.h"

namespace longspec::testing {

// (size, width).
inline std::vector<float> ValuesOf(const StateRows& rows) {
  std::vector<float> values(static_cast<size_t>(rows.size()) * static_cast<size_t>(rows.width()));
  rows.Copy(values.data());
  return values;
}

}  // namespace longspec::testing
