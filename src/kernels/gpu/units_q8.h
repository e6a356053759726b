// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic "q8" in units of a block of 32, whose terms t = fma(float(dot1), d[1], float(dot0) * d[0]) need
// no order.
#pragma once

#include "kernels/gpu/weight_layout.h"

namespace longspec::kernels::gpu {

template <WeightFormat F>
struct UnitsQ8 {
  using Activations = Q8Block;
  static constexpr int kValues = kQuantBlock;
  static constexpr int kBlocks = 1;
  static constexpr WeightFormat kFormat = F;

  // Integers begin at the bits of 1.5 * 2^23: a subtraction then makes them floats, exactly.
  static constexpr int32_t kBias = 0x4B400000;
  static constexpr float kBiasValue = 12582912.0F;

  template <int kTiles, class Cta, class Parts>
  static LONGSPEC_GPU void Terms(const Cta& cta, const Parts& parts, int unit, Lane lane,
                                 const Q8Block* const (&rows)[kTiles][3], float (&t)[kTiles][4]) {
    const BlockWeights<F> w = parts.template Weights<Cta>(unit, lane);
    LONGSPEC_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      const int8_t* q = rows[tile][0][unit].q;
      int32_t dots[2][4];
      LONGSPEC_UNROLL
      for (int h = 0; h < 2; ++h) {
        LONGSPEC_UNROLL
        for (int e = 0; e < 4; ++e) dots[h][e] = kBias + Less(rows[tile][1 + e % 2][unit], h);
        cta.Mma16(dots[h], w.Half(h, 0), w.Half(h, 1), At<uint32_t>(q + 16 * h, lane.j));
      }
      LONGSPEC_UNROLL
      for (int e = 0; e < 4; ++e) {
        const Q8Block& x = rows[tile][1 + e % 2][unit];
        t[tile][e] = Cta::Fma(Float<Cta>(dots[1][e]), x.d[1], Cta::Mul(Float<Cta>(dots[0][e]), x.d[0]));
      }
    }
  }

  template <class Cta, class Parts>
  static LONGSPEC_GPU float Next(float acc, float t, const Parts& parts, int unit, int out,
                                 const Q8Block* row) {
    const size_t number = static_cast<size_t>(unit) * kRowGroup + out;
    acc = Cta::Fma(Cta::Half(At<uint16_t>(parts.scales, number)), t, acc);
    if constexpr (kHasMin<F>) acc = Cta::Fma(Cta::Half(At<uint16_t>(parts.minima, number)), row[unit].s, acc);
    return acc;
  }

 private:
  // What takes off what was added to the weights.
  static LONGSPEC_GPU int32_t Less(const Q8Block& x, int half) {
    if constexpr (F == WeightFormat::kU4) {
      return x.less_8[half];
    } else if constexpr (F == WeightFormat::kU4Min) {
      return 0;
    } else {
      return x.less_128[half];
    }
  }
  template <class Cta>
  static LONGSPEC_GPU float Float(int32_t biased) {
    return Cta::Sub(Cta::Bits(static_cast<uint32_t>(biased)), kBiasValue);
  }
};

}  // namespace longspec::kernels::gpu
