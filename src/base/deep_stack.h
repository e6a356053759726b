// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include "longspec/status.h"

namespace longspec {

// Runs `work` to its end on a thread of its own, whose stack has so many bytes: for recursion as deep as what
// a stranger wrote. A page of the stack takes memory when it is touched. What `work` throws is thrown here.
// An error: the thread cannot be had, and nothing was run.
Status RunOnDeepStack(size_t bytes, const std::function<void()>& work);

}  // namespace longspec
