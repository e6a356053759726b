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
      int32_t dots[2][4];
      HalfDots<0>(cta, w, lane, rows[tile], unit, dots[0]);
      HalfDots<1>(cta, w, lane, rows[tile], unit, dots[1]);
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
    acc = Cta::Fma(ScaleAt<Cta>(parts.scales, number), t, acc);
    if constexpr (kHasMin<F>) acc = Cta::Fma(Cta::Half(At<uint16_t>(parts.minima, number)), row[unit].s, acc);
    return acc;
  }

 private:
  template <class Cta>
  static LONGSPEC_GPU float ScaleAt(const std::byte* scales, size_t number) {
    if constexpr (kScaleBytes<F> == 1) {
      // 2^(e - 128). Below 2^-126 there are two such numbers, whose bits are the greater here.
      const int32_t e = At<uint8_t>(scales, number);
      const uint32_t normal = e == 0 ? 0 : static_cast<uint32_t>(e - 1) << 23;
      const uint32_t tiny = static_cast<uint32_t>(e + 1) << 21;
      return Cta::Bits(normal > tiny ? normal : tiny);
    } else {
      return Cta::Half(At<uint16_t>(scales, number));
    }
  }
  template <int kHalf, class Cta>
  static LONGSPEC_GPU void HalfDots(const Cta& cta, const BlockWeights<F>& w, Lane lane,
                                    const Q8Block* const (&rows)[3], int unit, int32_t (&dots)[4]) {
    LONGSPEC_UNROLL
    for (int e = 0; e < 4; ++e) dots[e] = kBias + Less(rows[1 + e % 2][unit], kHalf);
    cta.Mma16(dots, w.template Half<kHalf>(lane, 0), w.template Half<kHalf>(lane, 1),
              At<uint32_t>(rows[0][unit].q + 16 * kHalf, lane.j));
  }
  // What takes off what was added to the weights.
  static LONGSPEC_GPU int32_t Less(const Q8Block& x, int half) {
    if constexpr (kOffset<F> == 0) {
      return 0;
    } else if constexpr (kOffset<F> == 128) {
      return x.less_128[half];
    } else {
      return kOffset<F> / 8 * x.less_8[half];
    }
  }
  template <class Cta>
  static LONGSPEC_GPU float Float(int32_t biased) {
    return Cta::Sub(Cta::Bits(static_cast<uint32_t>(biased)), kBiasValue);
  }
};

}  // namespace longspec::kernels::gpu
