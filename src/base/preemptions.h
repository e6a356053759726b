// SPDX-License-Identifier: Apache-2.0
//
// Whether other programs want the cores that this one runs on.
#pragma once

#include <cstdint>

namespace longspec {

// How often the system stopped a thread of this process that wanted to go on, so far. 0 where it does not
// say.
int64_t Preemptions();

}  // namespace longspec
