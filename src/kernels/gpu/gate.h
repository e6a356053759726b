// SPDX-License-Identifier: Apache-2.0
//
// Gates of an MLP (ops.h), by their z.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/exp.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

struct Silu {
  template <class Cta>
  static LONGSPEC_GPU float Z(float g) {
    return g;
  }
};

struct Gelu {
  template <class Cta>
  static LONGSPEC_GPU float Z(float g) {
    return Cta::Mul(g, Cta::Fma(Cta::Mul(g, g), kGeluCubic, kGeluLinear));
  }
};

// (g * (1 / (1 + exp(-z)))) * u
template <class Gate, class Cta>
LONGSPEC_GPU float GatedOf(float g, float u) {
  const float sigmoid = Cta::Div(1.0F, Cta::Add(1.0F, ExpOf<Cta>(-Gate::template Z<Cta>(g))));
  return Cta::Mul(Cta::Mul(g, sigmoid), u);
}

}  // namespace longspec::kernels::gpu
