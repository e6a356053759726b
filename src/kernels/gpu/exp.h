// SPDX-License-Identifier: Apache-2.0
//
// exp by the stated polynomial (docs/arithmetic.md).
#pragma once

#include "kernels/gpu/cta.h"

namespace longspec::kernels::gpu {

template <class Cta>
LONGSPEC_GPU float ExpOf(float x) {
  if (!(x == x)) return x;
  if (x < -87.33654F) return 0.0F;
  x = x < 88.37626F ? x : 88.37626F;
  const float n = Cta::Rint(Cta::Mul(x, 1.44269504F));
  float r = Cta::Fma(n, -0.693359375F, x);
  r = Cta::Fma(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = Cta::Fma(p, r, 1.3981999507e-3F);
  p = Cta::Fma(p, r, 8.3334519073e-3F);
  p = Cta::Fma(p, r, 4.1665795894e-2F);
  p = Cta::Fma(p, r, 1.6666665459e-1F);
  p = Cta::Fma(p, r, 5.0000001201e-1F);
  const float y = Cta::Add(Cta::Fma(p, Cta::Mul(r, r), r), 1.0F);
  return Cta::Mul(y, Cta::Bits(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23));
}

}  // namespace longspec::kernels::gpu
