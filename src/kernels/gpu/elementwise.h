// SPDX-License-Identifier: Apache-2.0
//
// What is computed for each number (each.h), and rotation, which has a thread for each pair.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/exp.h"
#include "kernels/gpu/gate.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

struct Exp {
  using Result = float;
  const float* x;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    return ExpOf<Cta>(x[i]);
  }
};

template <class Gate>
struct Gated {
  using Result = float;
  const float* g;
  const float* u;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    return GatedOf<Gate, Cta>(g[i], u[i]);
  }
  bool operator==(const Gated&) const = default;
};

// The first n_rot values of each head of each row, in place.
struct Rope {
  struct Args {
    float* x;
    int64_t row_stride, head_stride;
    const float* cos_sin;  // (n_rows, n_rot / 2, 2)
    int n_rows, n_heads, n_rot;
    RopePairing pairing;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) {
    return {.width = CeilDiv(int64_t{a.n_heads} * (a.n_rot / 2), kThreads), .height = a.n_rows};
  }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int n_pairs = a.n_rot / 2, at = cta.block() * kThreads + cta.thread(), row = cta.block_y();
    const int head = at / n_pairs, i = at % n_pairs;
    if (head >= a.n_heads) return;
    float* x = a.x + row * a.row_stride + head * a.head_stride;
    const bool adjacent = a.pairing == RopePairing::kAdjacent;
    float* first = x + (adjacent ? 2 * i : i);
    float* second = adjacent ? first + 1 : first + n_pairs;
    const float* cos_sin = a.cos_sin + int64_t{row} * a.n_rot + 2 * i;
    const float x0 = *first, x1 = *second, c = cos_sin[0], s = cos_sin[1];
    *first = Cta::Fma(x0, c, -Cta::Mul(x1, s));
    *second = Cta::Fma(x0, s, Cta::Mul(x1, c));
  }
};

}  // namespace longspec::kernels::gpu
