// SPDX-License-Identifier: Apache-2.0
//
// Whether tokens can be chosen from rows of logits (sampling/logits_check.h): a block of threads for each
// row.
#pragma once

#include "kernels/gpu/choice.h"
#include "kernels/gpu/cta.h"

namespace longspec::kernels::gpu {

struct RowCheck {
  int32_t n_illegal;      // NaN or plus infinity
  int32_t first_illegal;  // kNoIndex: there is none
  int32_t n_possible;     // finite ones

  template <class Cta>
  LONGSPEC_GPU RowCheck OfWarp(const Cta& cta) const {
    RowCheck all = *this;
    LONGSPEC_UNROLL
    for (int mask = kWarp / 2; mask >= 1; mask /= 2) {
      all.n_illegal += cta.ShuffleXor(all.n_illegal, mask);
      all.n_possible += cta.ShuffleXor(all.n_possible, mask);
      const int32_t first = cta.ShuffleXor(all.first_illegal, mask);
      if (first < all.first_illegal) all.first_illegal = first;
    }
    return all;
  }
};

struct CheckRows {
  struct Args {
    const float* x;
    int64_t stride;
    RowCheck* checks;  // (n_rows)
    int n, n_rows;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp;
  static Grid GridOf(const Args& a) { return {.width = a.n_rows, .shared_bytes = sizeof(RowCheck) * kWarps}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    constexpr float kMost = 0x1.fffffep127F;
    const float* x = a.x + cta.block() * a.stride;
    RowCheck own = {0, kNoIndex, 0};
    for (int i = cta.thread(); i < a.n; i += kThreads) {
      if (x[i] <= kMost) {
        own.n_possible += x[i] >= -kMost ? 1 : 0;
        continue;
      }
      if (own.n_illegal++ == 0) own.first_illegal = i;
    }
    auto* of_warps = reinterpret_cast<RowCheck*>(cta.Shared());
    own = own.OfWarp(cta);
    if (cta.thread() % kWarp == 0) of_warps[cta.thread() / kWarp] = own;
    cta.Sync();
    if (cta.thread() >= kWarp) return;
    const RowCheck none = {0, kNoIndex, 0};
    own = (cta.thread() < kWarps ? of_warps[cta.thread()] : none).OfWarp(cta);
    if (cta.thread() == 0) a.checks[cta.block()] = own;
  }
};

}  // namespace longspec::kernels::gpu
