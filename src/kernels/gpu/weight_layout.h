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

// What the four lanes of an output load of a block, and how their fragments are made of it: that of a half of
// the block is, of lane j, line 4 half + j of weights (tensor/weight_lines.h).
template <WeightFormat F>
struct LaneLoads {
  struct Part {
    int load, shift[4];
    uint32_t mask[4];  // of each lane
  };
  int n = 0;
  int line[6][4] = {};  // of each load and lane
  int n_parts[2] = {};  // of each half
  Part parts[2][3] = {};

  consteval LaneLoads() {
    for (int half = 0; half < 2; ++half) {
      const WeightLine* lines = kWeightLines[kBits<F>].of + 4 * half;
      for (int j = 0; j < 4; ++j)
        n_parts[half] = lines[j].n_parts > n_parts[half] ? lines[j].n_parts : n_parts[half];
      for (int p = 0; p < n_parts[half]; ++p) {
        Part& part = parts[half][p];
        int wanted[4] = {};  // the line of a lane that has no such part is one that it has anyway
        for (int j = 0; j < 4; ++j) {
          const LinePart of_lane = lines[j].parts[p < lines[j].n_parts ? p : 0];
          wanted[j] = of_lane.line;
          part.shift[j] = of_lane.from - of_lane.to;
          part.mask[j] = p < lines[j].n_parts ? (((1U << of_lane.n) - 1) << of_lane.to) * 0x01010101U : 0;
        }
        part.load = LoadOf(wanted);
      }
    }
  }

 private:
  // That of these lines, which may be there already.
  consteval int LoadOf(const int (&wanted)[4]) {
    for (int i = 0; i < n; ++i) {
      bool same = true;
      for (int j = 0; j < 4; ++j) same = same && line[i][j] == wanted[j];
      if (same) return i;
    }
    for (int j = 0; j < 4; ++j) line[n][j] = wanted[j];
    return n++;
  }
};

// Which of four numbers lane j has.
template <auto A, auto B, auto C, auto D>
LONGSPEC_GPU auto OfLane(int j) {
  if constexpr (A == B && A == C && A == D) {
    return A;
  } else {
    return j < 2 ? (j == 0 ? A : B) : (j == 2 ? C : D);
  }
}

// Eight bytes of kByteOfCode, from `first` on.
template <WeightFormat F>
consteval uint64_t EightBytesOfCodes(int first) {
  uint64_t bytes = 0;
  for (int i = 0; i < 8; ++i) bytes |= uint64_t{kByteOfCode<F>.of[first + i]} << 8 * i;
  return bytes;
}
// w + offset of four codes.
template <WeightFormat F>
LONGSPEC_GPU uint32_t BytesOfCodes(uint32_t codes) {
  constexpr uint64_t kLow = EightBytesOfCodes<F>(0), kHigh = EightBytesOfCodes<F>(8);
  uint32_t bytes = 0;
  LONGSPEC_UNROLL
  for (int at = 0; at < 32; at += 8) {
    const uint32_t code = codes >> at & 15;
    bytes |= static_cast<uint32_t>((code < 8 ? kLow : kHigh) >> 8 * (code & 7) & 255) << at;
  }
  return bytes;
}

// A lane's weights of a block of 32 k, as they lie in memory.
template <WeightFormat F>
struct BlockWeights {
  static constexpr LaneLoads<F> kLoads = {};
  static constexpr int kLoadCount = kLoads.n;
  Bytes8 loads[kLoadCount];

  // Where load kLoad of a lane begins.
  template <int kLoad>
  static LONGSPEC_GPU int LineOf(Lane lane) {
    return OfLane<kLoads.line[kLoad][0], kLoads.line[kLoad][1], kLoads.line[kLoad][2], kLoads.line[kLoad][3]>(
        lane.j);
  }

  // Fragment of the half block: of output 2 g + `second`.
  template <int kHalf>
  LONGSPEC_GPU uint32_t Half(Lane lane, int second) const {
    uint32_t word = PartOf<kHalf, 0>(lane, second);
    if constexpr (kLoads.n_parts[kHalf] > 1) word |= PartOf<kHalf, 1>(lane, second);
    if constexpr (kLoads.n_parts[kHalf] > 2) word |= PartOf<kHalf, 2>(lane, second);
    if constexpr (kHasCodes<F>) word = BytesOfCodes<F>(word);
    return word;
  }

 private:
  template <int kHalf, int kPart>
  LONGSPEC_GPU uint32_t PartOf(Lane lane, int second) const {
    constexpr auto kOf = kLoads.parts[kHalf][kPart];
    const int shift = OfLane<kOf.shift[0], kOf.shift[1], kOf.shift[2], kOf.shift[3]>(lane.j);
    const uint32_t mask = OfLane<kOf.mask[0], kOf.mask[1], kOf.mask[2], kOf.mask[3]>(lane.j);
    return loads[kOf.load].words[second] >> shift & mask;
  }
};

// The bytes of a group's parts that `n` units of kBlocks blocks have.
template <WeightFormat F, int kBlocks>
struct PartBytes {
  static constexpr size_t kQuants = kBlocks * kBlockBytes<F>;
  static constexpr size_t kNumbers = kRowGroup * kScaleBytes<F>;  // scales, and as many minima
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
  const std::byte* scales;       // (n_units, 16) f16, or exponents, u8
  const std::byte* minima;       // likewise
  const std::byte* factors;      // (n_block, 16) u8 or i8, or (n_block, 2, 16) i8
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
    const std::byte* at = quants + static_cast<size_t>(block) * kBlockBytes<F> + 8 * lane.g;
    Load<Cta, 0>(at, lane, w);
    return w;
  }

 private:
  // This load and those after it.
  template <class Cta, int kLoad>
  static LONGSPEC_GPU void Load(const std::byte* at, Lane lane, BlockWeights<F>& w) {
    const std::byte* from = at + 64 * BlockWeights<F>::template LineOf<kLoad>(lane);
    w.loads[kLoad] = kShared ? Cta::Load8(from) : Cta::Stream8(from);
    if constexpr (kLoad + 1 < BlockWeights<F>::kLoadCount) Load<Cta, kLoad + 1>(at, lane, w);
  }
};

}  // namespace longspec::kernels::gpu
