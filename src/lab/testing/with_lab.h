// SPDX-License-Identifier: Apache-2.0
//
// A test program that includes this has what experiments need.
#pragma once

#include "lab/lab.h"
#include "lab/replay_drafter.h"

namespace longspec::testing {

inline const bool kWithLab = [] {
  AddLab();
  return true;
}();

}  // namespace longspec::testing
