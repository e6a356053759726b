// SPDX-License-Identifier: Apache-2.0
//
// Bodies for each number: a thread computes one, and none needs another's.
#pragma once

#include "kernels/gpu/cta.h"

namespace longspec::kernels::gpu {

// out[i] = of.At<Cta>(i). `Of` is what is computed and the addresses of what it is computed from; its
// `Result` is the type of a number.
template <class Of>
struct Each {
  struct Args {
    Of of;
    typename Of::Result* out;
    int n;  // of out
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) { return {.width = CeilDiv(a.n, kThreads)}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int i = cta.block() * kThreads + cta.thread();
    if (i < a.n) a.out[i] = a.of.template At<Cta>(i);
  }
};

// Some numbers of `out` become others: out[at[i]] = x[i]. All of `at` differ.
struct Scatter {
  struct Args {
    const float* x;
    const int32_t* at;  // (n)
    float* out;
    int n;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) { return {.width = CeilDiv(a.n, kThreads)}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int i = cta.block() * kThreads + cta.thread();
    if (i < a.n) a.out[a.at[i]] = a.x[i];
  }
};

}  // namespace longspec::kernels::gpu
