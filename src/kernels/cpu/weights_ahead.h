// SPDX-License-Identifier: Apache-2.0
//
// What rows fetch while they pass over a group of packed weights. Everything lives in an unnamed namespace:
// files built for different instruction sets may include this.
#pragma once

#include <cstddef>

#include "kernels/cpu/weight_traits.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// Cache lines of one block: what follows the quants takes at most one.
template <WeightFormat F>
inline constexpr int kBlockLines = static_cast<int>(kBlockBytes<F> / 64) + 1;

// What comes long before it is read is fetched into the second-level cache. The first has a few dozen lines
// on their way at most, fewer than memory can deliver: fetched into that, weights come at half the speed, and
// push out what is worked on.
[[gnu::always_inline]] inline void FetchLine(const std::byte* line) { __builtin_prefetch(line, 0, 2); }

// What is read after a group: the next one, or what the caller reads then, or nothing, in whose place the
// group itself is fetched again.
template <typename Args>
inline const std::byte* AfterGroup(const Args& a, int group) {
  const std::byte* weights = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  if (group + 1 < a.group_end) return weights + a.w->group_bytes;
  return a.next != nullptr ? a.next : weights;
}

// Of more than two rows, which compute while the next group comes: the next L lines of it, or of a part of
// it, at each block.
template <int L>
class LinesAhead {
 public:
  explicit LinesAhead(const std::byte* next) : next_(next) {}
  [[gnu::always_inline]] void Fetch(int b) const {
#pragma GCC unroll 16
    for (int line = 0; line < L; ++line)
      FetchLine(next_ + (size_t{L} * static_cast<size_t>(b) + static_cast<size_t>(line)) * 64);
  }

 private:
  const std::byte* next_;
};

// Of one or two rows. They wait for memory, which delivers most if it is read as it lies, and so far ahead
// that as many lines are on their way as it can deliver. A group ends with its scales, which are read from
// its first block on: so behind the last quants the next group's follow, and its scales are fetched all the
// time.
template <WeightFormat F>
class WeightsAhead {
 public:
  WeightsAhead(const std::byte* quants, const std::byte* next, int n_block)
      : quants_(quants), next_(next), n_block_(n_block) {}

  // At block `b` of the group.
  [[gnu::always_inline]] void Fetch(int b) const {
    const int at = b + kAhead;
    const std::byte* quants = at < n_block_ ? quants_ + Offset(at) : next_ + Offset(at - n_block_);
#pragma GCC unroll 8
    for (size_t line = 0; line < kBlockBytes<F>; line += 64) FetchLine(quants + line);
    FetchLine(next_ + Offset(n_block_) + static_cast<size_t>(b) * 64);
  }

 private:
  static constexpr int kAhead = static_cast<int>(6144 / kBlockBytes<F>);  // blocks

  static size_t Offset(int block) { return static_cast<size_t>(block) * kBlockBytes<F>; }

  const std::byte *quants_, *next_;
  int n_block_;
};

// What the first tile of R rows fetches at each block of a group.
template <WeightFormat F, int R>
[[gnu::always_inline]] inline auto FirstTileAhead(const std::byte* quants, const std::byte* next,
                                                  int n_block) {
  if constexpr (R > 2) {
    return LinesAhead<kBlockLines<F>>(next);
  } else {
    return WeightsAhead<F>(quants, next, n_block);
  }
}

}  // namespace
}  // namespace longspec::kernels
