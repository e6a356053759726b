// SPDX-License-Identifier: Apache-2.0
//
// Rounding to the 16-bit float types.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// f16, to nearest even. A NaN keeps the upper bits that fit, as it does on a CPU; GPUs know only one.
template <class Cta>
LONGSPEC_GPU uint16_t HalfOf(float f) {
  const uint32_t bits = Cta::ToBits(f), magnitude = bits & 0x7FFFFFFF;
  if (magnitude <= 0x7F800000) return Cta::ToHalf(f);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7E00 | (magnitude >> 13 & 0x1FF));
}

// bf16, to nearest even.
template <class Cta>
LONGSPEC_GPU uint16_t Bf16Of(float f) {
  const uint32_t bits = Cta::ToBits(f);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Rows as f16.
struct RoundHalf {
  struct Args {
    const float* x;
    uint16_t* out;
    int n;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) { return {.width = CeilDiv(a.n, kThreads)}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int i = cta.block() * kThreads + cta.thread();
    if (i < a.n) a.out[i] = HalfOf<Cta>(a.x[i]);
  }
};

// As arithmetics "bf16" and "bf16-amx" want their activations: denormals are zeros, and zeros follow up to a
// multiple of 32.
struct RoundBf16 {
  struct Args {
    const float* x;
    uint16_t* out;
    int n;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) { return {.width = CeilDiv(a.n, kThreads)}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int i = cta.block() * kThreads + cta.thread();
    if (i >= (a.n + kAmxBlock - 1) / kAmxBlock * kAmxBlock) return;
    const float x = i < a.n ? a.x[i] : 0.0F;
    const uint32_t bits = Cta::ToBits(x);
    const bool denormal = (bits & 0x7FFFFFFF) < 0x00800000;
    a.out[i] = denormal ? static_cast<uint16_t>(bits >> 16 & 0x8000) : Bf16Of<Cta>(x);
  }
};

}  // namespace longspec::kernels::gpu
