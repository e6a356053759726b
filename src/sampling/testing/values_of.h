// SPDX-License-Identifier: Apache-2.0
//
// For tests: what a row of logits in host memory holds.
#pragma once

#include <span>
#include <vector>

#include "base/check.h"
#include "sampling/logit_rows.h"

namespace longspec::testing {

inline std::span<const float> ValuesOf(const LogitRow& row) {
  std::vector<float> room;
  const std::span<const float> values = row.Read(&room);
  LS_CHECK(room.empty());  // else they are gone
  return values;
}

}  // namespace longspec::testing
