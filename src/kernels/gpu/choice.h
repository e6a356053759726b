// SPDX-License-Identifier: Apache-2.0
//
// Searches of a row of logits, by several blocks of threads: each leaves the best of its part, and JoinParts
// takes the best of these. What is best does not depend on the order: of equals it is the lowest index.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

inline constexpr int32_t kNoIndex = 0x7FFFFFFF;

// A logit, or a token with its key in Gumbel-max sampling.
template <typename Number>
struct Best {
  Number value;
  int32_t index;

  static LONGSPEC_GPU Best None() { return {-static_cast<Number>(__builtin_inff()), kNoIndex}; }
  LONGSPEC_GPU bool IsAbove(const Best& other) const {
    return value > other.value || (value == other.value && index < other.index);
  }
  template <class Cta>
  LONGSPEC_GPU Best OfWarp(const Cta& cta) const {
    Best best = *this;
    LONGSPEC_UNROLL
    for (int mask = kWarp / 2; mask >= 1; mask /= 2) {
      const Best other = {cta.ShuffleXor(best.value, mask), cta.ShuffleXor(best.index, mask)};
      if (other.IsAbove(best)) best = other;
    }
    return best;
  }
  // In thread 0. of_warps: shared memory, one for each warp.
  template <class Cta>
  LONGSPEC_GPU Best OfBlock(const Cta& cta, Best* of_warps) const {
    const Best own = OfWarp(cta);
    const int thread = cta.thread(), n_warps = cta.n_threads() / kWarp;
    if (thread % kWarp == 0) of_warps[thread / kWarp] = own;
    cta.Sync();
    if (thread >= kWarp) return own;
    return (thread < n_warps ? of_warps[thread] : None()).OfWarp(cta);
  }
};

using BestLogit = Best<float>;
using BestKey = Best<double>;

// The largest logit of each part.
struct Argmax {
  struct Args {
    const float* x;
    int64_t stride;
    BestLogit* parts;  // (n_rows, n_parts)
    int n, n_rows, n_parts;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 256;
  static Grid GridOf(const Args& a) {
    return {.width = a.n_parts, .height = a.n_rows, .shared_bytes = sizeof(BestLogit) * kThreads / kWarp};
  }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const float* x = a.x + cta.block_y() * a.stride;
    BestLogit best = BestLogit::None();
#ifdef __CUDACC__
#pragma unroll 4
#endif
    for (int i = cta.block() * kThreads + cta.thread(); i < a.n; i += a.n_parts * kThreads) {
      const BestLogit other = {x[i], i};
      if (other.IsAbove(best)) best = other;
    }
    best = best.OfBlock(cta, reinterpret_cast<BestLogit*>(cta.Shared()));
    if (cta.thread() == 0) a.parts[cta.block_y() * a.n_parts + cta.block()] = best;
  }
};

template <typename T>
struct JoinParts {
  struct Args {
    const T* parts;  // (n_rows, n_parts)
    int n_parts, n_rows;
    int32_t* indices;  // (n_rows); 0 where nothing is above minus infinity
    T* best;           // (n_rows), or null
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = kWarp;
  static Grid GridOf(const Args& a) { return {.width = a.n_rows}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    T best = T::None();
    for (int i = cta.thread(); i < a.n_parts; i += kWarp) {
      const T other = a.parts[cta.block() * a.n_parts + i];
      if (other.IsAbove(best)) best = other;
    }
    best = best.OfWarp(cta);
    if (cta.thread() != 0) return;
    if (best.index == kNoIndex) best.index = 0;
    a.indices[cta.block()] = best.index;
    if (a.best != nullptr) a.best[cta.block()] = best;
  }
};

}  // namespace longspec::kernels::gpu
