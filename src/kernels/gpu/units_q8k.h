// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic "q8k" in units of a super-block, whose terms t need no order.
#pragma once

#include "kernels/gpu/weight_layout.h"

namespace longspec::kernels::gpu {

template <WeightFormat F>
struct UnitsQ8K {
  using Activations = Q8KBlock;
  static constexpr int kValues = kSuperBlock;
  static constexpr int kBlocks = kSuperBlock / kQuantBlock;
  using Parts = GroupParts<F>;

  // Of a lane's two outputs, in the bytes of a word: output 2 g in byte 0.
  static LONGSPEC_GPU uint32_t Pair(const std::byte* factors, int row, Lane lane) {
    return At<uint16_t>(factors + static_cast<size_t>(row) * kRowGroup, lane.g);
  }

  // t of unit `unit` for a group and kTiles times 8 rows. `rows`: of each tile the row of b and those of the
  // sums.
  template <int kTiles, class Cta>
  static LONGSPEC_GPU void Terms(const Cta& cta, const Parts& parts, int unit, Lane lane,
                                 const Q8KBlock* const (&rows)[kTiles][3], float (&t)[kTiles][4]) {
    BlockWeights<F> w[kBlocks];
    uint32_t factors[kBlocks][kHasHalves<F> ? 2 : 1], min_factors[kHasMin<F> ? kBlocks : 1];
    LONGSPEC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const size_t block = static_cast<size_t>(unit) * kBlocks + b;
      w[b] = BlockWeights<F>::template Stream<Cta>(parts.quants + block * kBlockBytes<F>, lane);
    }
    LONGSPEC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const int block = unit * kBlocks + b;
      if constexpr (kHasHalves<F>) {
        factors[b][0] = Pair(parts.factors, 2 * block, lane);
        factors[b][1] = Pair(parts.factors, 2 * block + 1, lane);
      } else {
        factors[b][0] = Pair(parts.factors, block, lane);
      }
      if constexpr (kHasMin<F>) min_factors[b] = Pair(parts.min_factors, block, lane);
    }
    const size_t number = static_cast<size_t>(unit) * kRowGroup + 2 * lane.g;
    const float d[2] = {Cta::Half(At<uint16_t>(parts.scales, number)),
                        Cta::Half(At<uint16_t>(parts.scales, number + 1))};
    float m[2] = {};
    if constexpr (kHasMin<F>) {
      m[0] = Cta::Half(At<uint16_t>(parts.minima, number));
      m[1] = Cta::Half(At<uint16_t>(parts.minima, number + 1));
    }
    LONGSPEC_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      int32_t dots[4] = {}, minima[4] = {};
      const Bytes8 steps[2] = {At<Bytes8>(rows[tile][1][unit].steps, 0),
                               At<Bytes8>(rows[tile][2][unit].steps, 0)};
      const int8_t* q = rows[tile][0][unit].q;
      LONGSPEC_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        const uint32_t x[2] = {At<uint32_t>(q + kQuantBlock * b, lane.j),
                               At<uint32_t>(q + kQuantBlock * b + 16, lane.j)};
        AddBlock(cta, w[b], x, factors[b], Byte(steps[0], b), Byte(steps[1], b), dots);
      }
      AddMinima(rows[tile], unit, factors, min_factors, minima);
      LONGSPEC_UNROLL
      for (int e = 0; e < 4; ++e) {
        if constexpr (kHasHalves<F>) dots[e] -= 32 * minima[e];
        t[tile][e] = Cta::Mul(d[e / 2], static_cast<float>(dots[e]));
        if constexpr (kHasMin<F>) t[tile][e] = Cta::Fma(-m[e / 2], static_cast<float>(minima[e]), t[tile][e]);
      }
    }
  }

  // The sum of an output and a row goes on by the next unit.
  template <class Cta>
  static LONGSPEC_GPU float Next(float acc, float t, const Parts&, int unit, int, const Q8KBlock* row) {
    return Cta::Fma(row[unit].d, t, acc);
  }

 private:
  static LONGSPEC_GPU int Byte(const Bytes8& bytes, int i) { return bytes.words[i / 4] >> 8 * (i % 4) & 255; }

  template <class Cta>
  static LONGSPEC_GPU void AddBlock(const Cta& cta, const BlockWeights<F>& w, const uint32_t (&x)[2],
                                    const uint32_t* factors, int steps0, int steps1, int32_t (&dots)[4]) {
    if constexpr (kHasHalves<F>) {
      LONGSPEC_UNROLL
      for (int h = 0; h < 2; ++h) {
        int32_t c[4] = {};
        cta.Mma16(c, w.Half(h, 0), w.Half(h, 1), x[h]);
        LONGSPEC_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int factor = static_cast<int8_t>(factors[h] >> 8 * (e / 2));
          dots[e] += c[e] * (factor * (e % 2 == 0 ? steps0 : steps1));
        }
      }
    } else {
      int32_t c[4] = {};
      const uint32_t a[4] = {w.Half(0, 0), w.Half(0, 1), w.Half(1, 0), w.Half(1, 1)};
      cta.Mma32(c, a, x);
      LONGSPEC_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int factor = static_cast<int>(factors[0] >> 8 * (e / 2) & 255);
        dots[e] += c[e] * (factor * (e % 2 == 0 ? steps0 : steps1));
      }
    }
  }

  // *Min: steps * the minimum's factor * the sum of q. *Halves: steps * factor * the sum of q, of which 32
  // times is what was added to the weights.
  template <int kParts>
  static LONGSPEC_GPU void AddMinima(const Q8KBlock* const (&rows)[3], int unit,
                                     const uint32_t (&factors)[kBlocks][kParts], const uint32_t* min_factors,
                                     int32_t (&minima)[4]) {
    if constexpr (!kHasHalves<F> && !kHasMin<F>) return;
    LONGSPEC_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Q8KBlock& x = rows[1 + r][unit];
      LONGSPEC_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        LONGSPEC_UNROLL
        for (int o = 0; o < 2; ++o) {
          if constexpr (kHasHalves<F>) {
            LONGSPEC_UNROLL
            for (int h = 0; h < 2; ++h)
              minima[2 * o + r] += static_cast<int8_t>(factors[b][h] >> 8 * o) * x.half_sums[2 * b + h];
          } else {
            minima[2 * o + r] += static_cast<int>(min_factors[b] >> 8 * o & 255) * x.block_sums[b];
          }
        }
      }
    }
  }
};

}  // namespace longspec::kernels::gpu
