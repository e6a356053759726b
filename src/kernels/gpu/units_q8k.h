// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic "q8k" in units of a super-block, whose terms t need no order.
#pragma once

#include "kernels/gpu/weight_layout.h"

namespace longspec::kernels::gpu {

template <WeightFormat F>
struct UnitsQ8K {
  using Activations = Q8KBlock;
  static constexpr WeightFormat kFormat = F;
  static constexpr int kValues = kSuperBlock;
  static constexpr int kBlocks = kSuperBlock / kQuantBlock;
  static constexpr int kFactors = kHasHalves<F> ? 2 : 1;  // of a block

  // t of unit `unit` for a group and kTiles times 8 rows. `rows`: of each tile the row of b and those of the
  // sums.
  template <int kTiles, class Cta, class Parts>
  static LONGSPEC_GPU void Terms(const Cta& cta, const Parts& parts, int unit, Lane lane,
                                 const Q8KBlock* const (&rows)[kTiles][3], float (&t)[kTiles][4]) {
    // From global memory all weights are asked for at once, from shared memory where they are needed.
    constexpr int kAhead = Parts::kInSharedMemory ? 0 : kBlocks;
    OfBlock ahead[kAhead > 0 ? kAhead : 1];
    LONGSPEC_UNROLL
    for (int b = 0; b < kAhead; ++b) ahead[b] = OfBlock::template Read<Cta>(parts, unit * kBlocks + b, lane);
    uint32_t steps[kTiles][2][2];  // of eight blocks
    LONGSPEC_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      LONGSPEC_UNROLL
      for (int r = 0; r < 2; ++r) {
        const Bytes16 end = Cta::Load16(&rows[tile][1 + r][unit].d);  // the scale, the steps, and more
        steps[tile][r][0] = end.words[1];
        steps[tile][r][1] = end.words[2];
      }
    }
    uint32_t dots[kTiles][4] = {};
    LONGSPEC_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const OfBlock block = kAhead > 0 ? ahead[b < kAhead ? b : 0]
                                       : OfBlock::template Read<Cta>(parts, unit * kBlocks + b, lane);
      LONGSPEC_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        const int8_t* q = rows[tile][0][unit].q + kQuantBlock * b;
        const uint32_t x[2] = {At<uint32_t>(q, lane.j), At<uint32_t>(q + 16, lane.j)};
        const uint32_t of_rows[2] = {steps[tile][0][b / 4] >> 8 * (b % 4) & 255,
                                     steps[tile][1][b / 4] >> 8 * (b % 4) & 255};
        AddBlock(cta, block, lane, x, of_rows, dots[tile]);
      }
    }
    const OfSums of_sums(parts, unit, lane);
    const uint32_t d = Pair16(parts.scales, unit, lane),
                   m = kHasMin<F> ? Pair16(parts.minima, unit, lane) : 0;
    LONGSPEC_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      int32_t minima[4] = {};
      LONGSPEC_UNROLL
      for (int r = 0; r < 2; ++r) of_sums.template Add<Cta>(rows[tile][1 + r][unit], r, minima);
      LONGSPEC_UNROLL
      for (int e = 0; e < 4; ++e) {
        if constexpr (!kHasMin<F>) dots[tile][e] -= uint32_t{kOffset<F>} * static_cast<uint32_t>(minima[e]);
        t[tile][e] = Cta::Mul(HalfOf<Cta>(d, e / 2), static_cast<float>(static_cast<int32_t>(dots[tile][e])));
        if constexpr (kHasMin<F>)
          t[tile][e] = Cta::Fma(-HalfOf<Cta>(m, e / 2), static_cast<float>(minima[e]), t[tile][e]);
      }
    }
  }

  // The sum of an output and a row goes on by the next unit.
  template <class Cta, class Parts>
  static LONGSPEC_GPU float Next(float acc, float t, const Parts&, int unit, int, const Q8KBlock* row) {
    return Cta::Fma(row[unit].d, t, acc);
  }

 private:
  // Of a lane's two outputs: output 2 g comes first.
  static LONGSPEC_GPU uint32_t Pair(const std::byte* bytes, int row, Lane lane) {
    return At<uint16_t>(bytes + static_cast<size_t>(row) * kRowGroup, lane.g);
  }
  static LONGSPEC_GPU uint32_t Pair16(const std::byte* halves, int row, Lane lane) {
    return At<uint32_t>(halves + static_cast<size_t>(row) * kRowGroup * 2, lane.g);
  }
  template <class Cta>
  static LONGSPEC_GPU float HalfOf(uint32_t pair, int i) {
    return Cta::Half(static_cast<uint16_t>(pair >> 16 * i));
  }

  struct OfBlock {
    BlockWeights<F> w;
    uint32_t factors[kFactors];

    template <class Cta, class Parts>
    static LONGSPEC_GPU OfBlock Read(const Parts& parts, int block, Lane lane) {
      OfBlock of;
      of.w = parts.template Weights<Cta>(block, lane);
      LONGSPEC_UNROLL
      for (int h = 0; h < kFactors; ++h) of.factors[h] = Pair(parts.factors, block * kFactors + h, lane);
      return of;
    }
  };

  // dots += steps * factor * (sum of w * q), modulo 2^32: lanes past the last output may hold any bytes.
  template <class Cta>
  static LONGSPEC_GPU void AddBlock(const Cta& cta, const OfBlock& block, Lane lane, const uint32_t (&x)[2],
                                    const uint32_t (&steps)[2], uint32_t (&dots)[4]) {
    const BlockWeights<F>& w = block.w;
    if constexpr (kHasHalves<F>) {
      AddHalf<0>(cta, block, lane, x, steps, dots);
      AddHalf<1>(cta, block, lane, x, steps, dots);
    } else {
      int32_t c[4] = {};
      const uint32_t a[4] = {w.template Half<0>(lane, 0), w.template Half<0>(lane, 1),
                             w.template Half<1>(lane, 0), w.template Half<1>(lane, 1)};
      cta.Mma32(c, a, x);
      if constexpr (kHasMin<F>) {
        const uint32_t apart = (block.factors[0] & 0xFF) | (block.factors[0] & 0xFF00) << 8;
        LONGSPEC_UNROLL
        for (int r = 0; r < 2; ++r) {
          const uint32_t both = apart * steps[r];  // at most 63 * 8 in each half
          dots[r] += static_cast<uint32_t>(c[r]) * (both & 0xFFFF);
          dots[2 + r] += static_cast<uint32_t>(c[2 + r]) * (both >> 16);
        }
      } else {
        LONGSPEC_UNROLL
        for (int e = 0; e < 4; ++e)
          dots[e] += static_cast<uint32_t>(c[e]) * (SignedFactor(block.factors[0], e) * steps[e % 2]);
      }
    }
  }
  // Of sum e of a lane.
  static LONGSPEC_GPU uint32_t SignedFactor(uint32_t pair, int e) {
    return static_cast<uint32_t>(static_cast<int8_t>(pair >> 8 * (e / 2)));
  }
  template <int kHalf, class Cta>
  static LONGSPEC_GPU void AddHalf(const Cta& cta, const OfBlock& block, Lane lane, const uint32_t (&x)[2],
                                   const uint32_t (&steps)[2], uint32_t (&dots)[4]) {
    int32_t c[4] = {};
    cta.Mma16(c, block.w.template Half<kHalf>(lane, 0), block.w.template Half<kHalf>(lane, 1), x[kHalf]);
    LONGSPEC_UNROLL
    for (int e = 0; e < 4; ++e)
      dots[e] += static_cast<uint32_t>(c[e]) * (SignedFactor(block.factors[kHalf], e) * steps[e % 2]);
  }

  // Factors of steps * (sum of q). *Min: the minimum's factors of block_sums. Else: the factors of block_sums
  // or half_sums, of which as many times as the offset is what was added to the weights. Four in a word, for
  // each of a lane's two outputs.
  class OfSums {
   public:
    template <class Parts>
    LONGSPEC_GPU OfSums(const Parts& parts, int unit, Lane lane) {
      const std::byte* bytes = kHasMin<F> ? parts.min_factors : parts.factors;
      LONGSPEC_UNROLL
      for (int i = 0; i < kWords; ++i) {
        uint32_t pairs[4];
        LONGSPEC_UNROLL
        for (int k = 0; k < 4; ++k) pairs[k] = Pair(bytes, unit * kWords * 4 + 4 * i + k, lane);
        const uint32_t low = pairs[0] | pairs[1] << 16, high = pairs[2] | pairs[3] << 16;
        words_[0][i] = (low & 0xFF) | (low >> 8 & 0xFF00) | (high & 0xFF) << 16 | (high & 0xFF0000) << 8;
        words_[1][i] = (low >> 8 & 0xFF) | (low >> 16 & 0xFF00) | (high & 0xFF00) << 8 | (high & 0xFF000000);
      }
    }
    template <class Cta>
    LONGSPEC_GPU void Add(const Q8KBlock& x, int r, int32_t (&sums)[4]) const {
      const void* from = kHasHalves<F> ? x.half_sums : x.block_sums;
      LONGSPEC_UNROLL
      for (int i = 0; i < kWords; i += 2) {
        const Bytes16 pairs = Cta::Load16(static_cast<const std::byte*>(from) + 8 * i);
        LONGSPEC_UNROLL
        for (int o = 0; o < 2; ++o) {
          int32_t& sum = sums[2 * o + r];
          sum = Cta::template Dot2<0>(pairs.words[0], words_[o][i], sum);
          sum = Cta::template Dot2<1>(pairs.words[1], words_[o][i], sum);
          sum = Cta::template Dot2<0>(pairs.words[2], words_[o][i + 1], sum);
          sum = Cta::template Dot2<1>(pairs.words[3], words_[o][i + 1], sum);
        }
      }
    }

   private:
    static constexpr int kWords = kHasHalves<F> ? 4 : 2;
    uint32_t words_[2][kWords];
  };
};

}  // namespace longspec::kernels::gpu
