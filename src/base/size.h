// SPDX-License-Identifier: Apache-2.0
//
// Z: a count or an index, which are signed in models and files, for the containers of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longspec {

inline size_t Z(int64_t n) { return static_cast<size_t>(n); }

}  // namespace longspec
