// SPDX-License-Identifier: Apache-2.0
//
// What one or two rows fetch while they pass over a group of packed weights. They wait for memory, which
// delivers most if it is read as it lies and a little ahead. A group ends with its scales, which are read
// from its first block on: so behind the last quants the next group's follow, and its scales are fetched all
// the time. Everything lives in an unnamed namespace: files built for different instruction sets may include
// this.
#pragma once

#include <cstddef>

#include "kernels/cpu/weight_traits.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

template <WeightFormat F>
class WeightsAhead {
 public:
  WeightsAhead(const std::byte* quants, size_t group_bytes, int n_block)
      : quants_(quants), next_(quants + group_bytes), n_block_(n_block) {}

  // At block `b` of the group.
  [[gnu::always_inline]] void Fetch(int b) const {
    const int at = b + kAhead;
    const std::byte* quants = at < n_block_ ? quants_ + Offset(at) : next_ + Offset(at - n_block_);
#pragma GCC unroll 8
    for (size_t line = 0; line < kBlockBytes<F>; line += 64) __builtin_prefetch(quants + line);
    __builtin_prefetch(next_ + Offset(n_block_) + static_cast<size_t>(b) * 64);
  }

 private:
  static constexpr int kAhead = static_cast<int>(2048 / kBlockBytes<F>);  // blocks

  static size_t Offset(int block) { return static_cast<size_t>(block) * kBlockBytes<F>; }

  const std::byte *quants_, *next_;
  int n_block_;
};

}  // namespace
}  // namespace longspec::kernels
