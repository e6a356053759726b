// SPDX-License-Identifier: Apache-2.0
//
// Packed quantised weights as fragments of a warp's products, and where a group's scales lie
// (tensor/weight_format.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weight_traits.h"
#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

template <WeightFormat F>
inline constexpr bool kHasHalves = kWeightFormats[static_cast<int>(F)].halves;
template <WeightFormat F>
inline constexpr bool kHasSuper = kWeightFormats[static_cast<int>(F)].arithmetic == Arithmetic::kQ8K;

template <typename T>
LONGSPEC_GPU T At(const void* p, size_t index) {
#ifndef __CUDACC__
  if (reinterpret_cast<uintptr_t>(p) % alignof(T) != 0) __builtin_trap();  // as a GPU would
#endif
  return static_cast<const T*>(p)[index];
}

// A lane's place in fragments of products (cta.h): of weights it has output rows 2 g and 2 g + 1 of a group,
// which lie side by side, as rows g and g + 8 of the fragment; of sums it has these and x's rows 2 j, 2 j
// + 1.
struct Lane {
  int g, j;
};
LONGSPEC_GPU Lane LaneOf(int thread) { return {thread % kWarp / 4, thread % 4}; }
// Of sum e of a lane: its output and its row.
LONGSPEC_GPU int OutputOf(Lane lane, int e) { return 2 * lane.g + e / 2; }
LONGSPEC_GPU int RowOf(Lane lane, int e) { return 2 * lane.j + e % 2; }

// A lane's weights of a block of 32 k, as they lie in memory.
template <WeightFormat F>
struct BlockWeights {
  static constexpr int kLoads = kIsU4<F> ? 1 : 2;
  Bytes8 loads[kLoads];

  // Fragment of the half block: of output 2 g + `second`.
  LONGSPEC_GPU uint32_t Half(int half, int second) const {
    if constexpr (kIsU4<F>) {
      return loads[0].words[second] >> 4 * half & 0x0F0F0F0FU;
    } else {
      return loads[half].words[second];
    }
  }
};

// The bytes of a group's parts that `n` units of kBlocks blocks have.
template <WeightFormat F, int kBlocks>
struct PartBytes {
  static constexpr size_t kQuants = kBlocks * kBlockBytes<F>;
  static constexpr size_t kNumbers = kRowGroup * 2;  // scales, and as many minima
  static constexpr size_t kFactors = kHasSuper<F> ? kBlocks * kRowGroup * (kHasHalves<F> ? 2 : 1) : 0;
  static constexpr size_t kMinima = kHasMin<F> ? kNumbers : 0;
  static constexpr size_t kMinFactors = kHasSuper<F> && kHasMin<F> ? kBlocks * kRowGroup : 0;
  static constexpr size_t kAll = kQuants + kNumbers + kMinima + kFactors + kMinFactors;
};

// Where the parts of a group begin, in global memory, or of some units of it, in shared memory.
template <WeightFormat F, int kBlocks, bool kShared>
struct GroupParts {
  using Bytes = PartBytes<F, kBlocks>;
  static constexpr bool kInSharedMemory = kShared;

  const std::byte* quants;
  const std::byte* scales;       // (n_units, 16) f16
  const std::byte* minima;       // likewise
  const std::byte* factors;      // (n_block, 16) u8, or (n_block, 2, 16) i8
  const std::byte* min_factors;  // (n_block, 16) u8

  LONGSPEC_GPU GroupParts(const std::byte* group, int n_units) {
    const size_t n = n_units;
    quants = group;
    scales = quants + n * Bytes::kQuants;
    minima = scales + n * Bytes::kNumbers;
    factors = minima + n * Bytes::kMinima;
    min_factors = factors + n * Bytes::kFactors;
  }

  template <class Cta>
  LONGSPEC_GPU BlockWeights<F> Weights(int block, Lane lane) const {
    BlockWeights<F> w;
    const std::byte* at = quants + static_cast<size_t>(block) * kBlockBytes<F> + 64 * lane.j + 8 * lane.g;
    LONGSPEC_UNROLL
    for (int i = 0; i < BlockWeights<F>::kLoads; ++i)
      w.loads[i] = kShared ? Cta::Load8(at + 256 * i) : Cta::Stream8(at + 256 * i);
    return w;
  }
};

}  // namespace longspec::kernels::gpu
