// SPDX-License-Identifier: Apache-2.0
//
// Softmax numerators of one chunk by a warp: lane l has keys l, l + 32, ..., so that stripe j of the 16 is
// what lanes j and j + 16 hold, in turns.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/exp.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

inline constexpr int kKeysOfLane = kChunk / kWarp;

struct SoftmaxSum {
  float max, sum;  // of the whole chunk, in lane 0
};

// Keys [low, n) are seen; the others' scores become 0, which adds nothing. 0 <= low < n.
template <class Cta>
LONGSPEC_GPU SoftmaxSum SoftmaxOf(const Cta& cta, float (&s)[kKeysOfLane], int low, int n) {
  const int lane = cta.thread() % kWarp;
  const float unseen = -__builtin_inff();
  float m = unseen;
  LONGSPEC_UNROLL
  for (int i = 0; i < kKeysOfLane; ++i) {
    const int key = i * kWarp + lane;
    if (key < low || key >= n) s[i] = unseen;
    m = s[i] > m ? s[i] : m;
  }
  LONGSPEC_UNROLL
  for (int mask = kWarp / 2; mask >= 1; mask /= 2) {
    const float other = cta.ShuffleXor(m, mask);
    m = other > m ? other : m;
  }
  m = Cta::Add(m, 0.0F);  // never -0
  float stripe = 0.0F;
  LONGSPEC_UNROLL
  for (int i = 0; i < kKeysOfLane; ++i) {
    const int key = i * kWarp + lane;
    s[i] = key < n ? ExpOf<Cta>(Cta::Sub(s[i], m)) : 0.0F;
    const float other = cta.ShuffleXor(s[i], kWarp / 2);
    stripe = Cta::Add(Cta::Add(stripe, s[i]), other);  // right in the lower lanes
  }
  LONGSPEC_UNROLL
  for (int width = 8; width >= 1; width /= 2) stripe = Cta::Add(stripe, cta.ShuffleXor(stripe, width));
  return {m, stripe};
}

struct SoftmaxChunk {
  struct Args {
    float* scores;
    float* state;
    int n;
  };
  static constexpr int kThreads = kWarp;
  static Grid GridOf(const Args&) { return {}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    float s[kKeysOfLane];
    LONGSPEC_UNROLL
    for (int i = 0; i < kKeysOfLane; ++i) {
      const int key = i * kWarp + cta.thread();
      s[i] = key < a.n ? a.scores[key] : 0.0F;
    }
    const SoftmaxSum sum = SoftmaxOf(cta, s, 0, a.n);
    LONGSPEC_UNROLL
    for (int i = 0; i < kKeysOfLane; ++i) {
      const int key = i * kWarp + cta.thread();
      if (key < a.n) a.scores[key] = s[i];
    }
    if (cta.thread() != 0) return;
    a.state[0] = sum.max;
    a.state[1] = sum.sum;
  }
};

}  // namespace longspec::kernels::gpu
