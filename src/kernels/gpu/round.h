// SPDX-License-Identifier: Apache-2.0
//
// Rounding to the 16-bit float types.
#pragma once

#include "kernels/gpu/cta.h"

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

// As arithmetics "bf16" and "bf16-amx" want their activations: denormals are zeros of their signs.
template <class Cta>
LONGSPEC_GPU uint16_t FlushedBf16Of(float f) {
  const uint32_t bits = Cta::ToBits(f);
  const bool denormal = (bits & 0x7FFFFFFF) < 0x00800000;
  return denormal ? static_cast<uint16_t>(bits >> 16 & 0x8000) : Bf16Of<Cta>(f);
}

// ---- For each number (each.h)

struct RoundHalf {
  using Result = uint16_t;
  const float* x;
  template <class Cta>
  LONGSPEC_GPU uint16_t At(int i) const {
    return HalfOf<Cta>(x[i]);
  }
};

// A row of activations; zeros follow.
struct RoundBf16 {
  using Result = uint16_t;
  const float* x;
  int n;
  template <class Cta>
  LONGSPEC_GPU uint16_t At(int i) const {
    return FlushedBf16Of<Cta>(i < n ? x[i] : 0.0F);
  }
};

}  // namespace longspec::kernels::gpu
