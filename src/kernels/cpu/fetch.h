// SPDX-License-Identifier: Apache-2.0
//
// Asking memory for what is read next from loops that compute. Attention reads a chunk of keys, then of
// values, each once: without this, memory idles while a chunk is worked on. Asked for evenly: memory delivers
// more slowly than a loop can ask, so that a loop that asked early would wait, and memory idle afterwards.
// Everything lives in an unnamed namespace on purpose: files built for different instruction sets include
// this, and each gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// Dimensions or keys between two calls of Step, for tiles of R rows: few rows wait for memory, and do so
// least if it is asked steadily; more rows compute, and every instruction counts. A divisor of 16.
template <int R>
inline constexpr int kStride = R <= 3 ? 4 : 16;

class Fetch {
 public:
  // Over `work` units of work, however many of them each step does. REQUIRES: less than 2^47 bytes
  Fetch(const Upcoming& next, int64_t work)
      : begin_(next.begin),
        per_unit_(work > 0 ? (next.bytes << kFraction) / static_cast<uint64_t>(work) : 0) {}

  // `units` of it are done next. Not for innermost loops: it takes about ten instructions.
  void Step(int units) {
    due_ += per_unit_ * static_cast<uint64_t>(units);
    while (asked_ < due_ >> kFraction) {
      // Into the second-level cache: the first holds what is worked on.
      __builtin_prefetch(begin_ + asked_, 0, 2);
      asked_ += kLineBytes;
    }
  }

 private:
  static constexpr int kFraction = 16;  // bits
  static constexpr uint64_t kLineBytes = 64;

  const std::byte* begin_;
  uint64_t per_unit_;  // bytes, in 2^-kFraction
  uint64_t due_ = 0, asked_ = 0;
};

// Keys times rows that see them.
[[maybe_unused]] inline int64_t SeenKeys(const ValuesArgs& a) {
  int64_t n = 0;
  for (int row = 0; row < a.n_rows; ++row) n += a.n_keys[row];
  return n;
}

}  // namespace
}  // namespace longspec::kernels
