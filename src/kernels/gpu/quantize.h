// SPDX-License-Identifier: Apache-2.0
//
// Activations of the q8 and q8k arithmetics (ops.h). A row is quantised by lanes that hold neighbouring
// values; where these come from is a source's affair, so that what makes them needs no kernel of its own.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/gate.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

inline constexpr uint32_t kInfinityBits = 0x7F800000, kNanBits = 0x7FC00000;

LONGSPEC_GPU uint32_t LargerOf(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The largest magnitude, as bits: of numbers that are finite these are in the numbers' order, and others are
// above them.
template <class Cta, int kN>
LONGSPEC_GPU uint32_t LargestOf(const float (&x)[kN]) {
  uint32_t largest = 0;
  LONGSPEC_UNROLL
  for (int i = 0; i < kN; ++i) largest = LargerOf(largest, Cta::ToBits(x[i]) & 0x7FFFFFFF);
  return largest;
}

// q = rint(x * inverse), four of them as a word; adds them to sum.
template <class Cta>
LONGSPEC_GPU uint32_t QuantsOf(const float* x, float inverse, int32_t& sum) {
  uint32_t word = 0;
  LONGSPEC_UNROLL
  for (int i = 0; i < 4; ++i) {
    const auto q = static_cast<int32_t>(Cta::Rint(Cta::Mul(x[i], inverse)));
    sum += q;
    word |= (static_cast<uint32_t>(q) & 255) << 8 * i;
  }
  return word;
}

// The sum of the magnitudes of a word's four signed bytes.
LONGSPEC_GPU int32_t MagnitudeOf(uint32_t word) {
  int32_t sum = 0;
  LONGSPEC_UNROLL
  for (int at = 0; at < 32; at += 8) {
    const int32_t q = static_cast<int8_t>(word >> at);
    sum += q < 0 ? -q : q;
  }
  return sum;
}

// A block of 32: eight lanes with four values each, four lanes to a half.
struct ToQ8 {
  using Block = Q8Block;
  static constexpr int kBlock = kQuantBlock, kOfLane = 4;

  template <class Cta>
  static LONGSPEC_GPU void Store(const Cta& cta, const float (&x)[kOfLane], Block* to) {
    const int lane = cta.thread() % 8, half = lane / 4;
    uint32_t largest = LargestOf<Cta>(x);
    largest = LargerOf(largest, cta.ShuffleXor(largest, 1));
    largest = LargerOf(largest, cta.ShuffleXor(largest, 2));
    const uint32_t others = cta.ShuffleXor(largest, 4);  // of the other half
    const bool finite = LargerOf(largest, others) < kInfinityBits;
    const float most = Cta::Bits(largest);
    const float inverse = !finite || most < 0x1.0p-120F ? 0.0F : Cta::Div(127.0F, most);
    int32_t sum = 0;
    uint32_t q = 0;
    if (finite) q = QuantsOf<Cta>(x, inverse, sum);
    sum += cta.ShuffleXor(sum, 1);
    sum += cta.ShuffleXor(sum, 2);
    const int32_t other_sum = cta.ShuffleXor(sum, 4);
    if (to == nullptr) return;
    const float nan = Cta::Bits(kNanBits), d = finite ? Cta::Div(most, 127.0F) : nan;
    reinterpret_cast<uint32_t*>(to->q)[lane] = q;
    if (lane % 4 != 0) return;
    to->d[half] = d;
    to->less_8[half] = -8 * sum;
    to->less_128[half] = -128 * sum;
    if (half == 1) return;
    const float other_d = Cta::Div(Cta::Bits(others), 127.0F);
    const float s = Cta::Fma(other_d, static_cast<float>(other_sum), Cta::Mul(d, static_cast<float>(sum)));
    to->s = finite ? s : nan;
    to->unused = 0;
  }
};

// A block of 256: a warp with eight values a lane, two lanes to a half and four to a block of 32.
struct ToQ8K {
  using Block = Q8KBlock;
  static constexpr int kBlock = kSuperBlock, kOfLane = 8;

  template <class Cta>
  static LONGSPEC_GPU void Store(const Cta& cta, const float (&x)[kOfLane], Block* to) {
    const int lane = cta.thread() % kWarp;
    uint32_t of_block = LargestOf<Cta>(x);
    of_block = LargerOf(of_block, cta.ShuffleXor(of_block, 1));
    of_block = LargerOf(of_block, cta.ShuffleXor(of_block, 2));
    uint32_t largest = of_block;
    LONGSPEC_UNROLL
    for (int mask = 4; mask < kWarp; mask *= 2) largest = LargerOf(largest, cta.ShuffleXor(largest, mask));
    const bool finite = largest < kInfinityBits;
    const float most = Cta::Bits(largest);
    const bool none = !finite || most < 0x1.0p-116F;
    const float steps_of_one = none ? 0.0F : Cta::Div(8.0F, most);
    const float finest = none ? 0.0F : Cta::Div(1016.0F, most);
    int32_t steps = 0, sum = 0;
    uint32_t q[2] = {};
    if (finite) {
      const float wanted = Cta::Mul(Cta::Bits(of_block), steps_of_one);  // about 8 at most
      steps = static_cast<int32_t>(wanted);
      if (static_cast<float>(steps) < wanted) ++steps;
      steps = steps < 1 ? 1 : steps > kMostSteps ? kMostSteps : steps;
      const float inverse = Cta::Div(finest, static_cast<float>(steps));
      q[0] = QuantsOf<Cta>(x, inverse, sum);
      q[1] = QuantsOf<Cta>(x + 4, inverse, sum);
    }
    int32_t magnitude = MagnitudeOf(q[0]) + MagnitudeOf(q[1]);
    magnitude += cta.ShuffleXor(magnitude, 1);
    const int32_t other = cta.ShuffleXor(magnitude, 2);  // of the block's other half
    const int32_t of_half = sum + cta.ShuffleXor(sum, 1);
    const int32_t of_both = of_half + cta.ShuffleXor(of_half, 2);
    const int32_t larger = (magnitude + other + (of_both < 0 ? -of_both : of_both)) / 2;
    uint32_t wide = 0;  // as SetWide of ops.h, in three bytes
    if (15 * larger > INT16_MAX) wide |= 1;
    if (31 * larger > INT16_MAX) wide |= 1 << 8;
    if (32 * (magnitude > other ? magnitude : other) > INT16_MAX) wide |= 1 << 16;
    wide <<= lane / 4;
    LONGSPEC_UNROLL
    for (int mask = 4; mask < kWarp; mask *= 2) wide |= cta.ShuffleXor(wide, mask);
    if (to == nullptr) return;
    auto* words = reinterpret_cast<uint32_t*>(to->q) + 2 * lane;
    words[0] = q[0];
    words[1] = q[1];
    if (lane % 2 == 0) to->half_sums[lane / 2] = static_cast<int16_t>(steps * of_half);
    if (lane % 4 == 0) {
      to->block_sums[lane / 4] = static_cast<int16_t>(steps * of_both);
      to->steps[lane / 4] = static_cast<uint8_t>(steps);
    }
    if (lane == 0) {
      to->d = finite ? Cta::Div(most, 1016.0F) : Cta::Bits(kNanBits);
      for (int i = 0; i < 3; ++i) to->wide[i] = static_cast<uint8_t>(wide >> 8 * i);
      to->unused = 0;
    }
  }
};

// Four neighbouring numbers; 16-byte aligned.
template <class Cta>
LONGSPEC_GPU void Read4(const float* from, float* x) {
  const Bytes16 bytes = Cta::Load16(from);
  LONGSPEC_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = Cta::Bits(bytes.words[i]);
}

// ---- Sources: values 4 i to 4 i + 3 of a row. Rows begin at multiples of 16 bytes.

struct PlainRows {
  const float* x;
  int64_t stride;

  template <class Cta>
  LONGSPEC_GPU void Read(int row, int at, float* to) const {
    Read4<Cta>(x + row * stride + at, to);
  }
  bool operator==(const PlainRows&) const = default;
};

template <class Gate>
struct GatedRows {
  const float* g;
  const float* u;
  int64_t stride;

  template <class Cta>
  LONGSPEC_GPU void Read(int row, int at, float* to) const {
    float gate[4], up[4];
    Read4<Cta>(g + row * stride + at, gate);
    Read4<Cta>(u + row * stride + at, up);
    LONGSPEC_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = GatedOf<Gate, Cta>(gate[i], up[i]);
  }
  bool operator==(const GatedRows&) const = default;
};

// Lanes thread, thread + n_threads, ... of row `row`, n values long.
template <class To, class Cta, class Source>
LONGSPEC_GPU void QuantizeRow(const Cta& cta, const Source& source, int row, int n, int thread, int n_threads,
                              typename To::Block* out) {
  const int n_lanes = n / To::kOfLane;
  for (int first = thread - cta.thread() % kWarp; first < n_lanes; first += n_threads) {  // whole warps
    const int lane = first + cta.thread() % kWarp;
    const bool inside = lane < n_lanes;
    float x[To::kOfLane];
    LONGSPEC_UNROLL
    for (int i = 0; i < To::kOfLane; i += 4) {
      source.template Read<Cta>(row, (inside ? lane : n_lanes - 1) * To::kOfLane + i, x + i);
    }
    To::Store(cta, x, inside ? out + lane * To::kOfLane / To::kBlock : nullptr);
  }
}

template <class To, class Source = PlainRows>
struct Quantize {
  struct Args {
    Source source;
    typename To::Block* out;  // (n_rows, n / To::kBlock)
    int n, n_rows;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) {
    return {.width = CeilDiv(a.n / To::kOfLane, kThreads), .height = a.n_rows};
  }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int row = cta.block_y(), n_blocks = a.n / To::kBlock;
    QuantizeRow<To>(cta, a.source, row, a.n, cta.block() * kThreads + cta.thread(), cta.n_blocks() * kThreads,
                    a.out + int64_t{row} * n_blocks);
  }
};

}  // namespace longspec::kernels::gpu
