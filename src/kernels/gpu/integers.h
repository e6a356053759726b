// SPDX-License-Identifier: Apache-2.0
//
// What arithmetic "i8" (ops.h) makes of 32 numbers: integers and a scale.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/kv.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// Numbers are d * Of(number).
template <class Cta>
struct IntegerScale {
  float d, inverse;  // inverse 0: all integers are

  // By the bits of the largest magnitude.
  static LONGSPEC_GPU IntegerScale By(uint32_t largest) {
    if (largest >= 0x7F800000) return {Cta::Bits(0x7FC00000), 0.0F};
    const float a = Cta::Bits(largest);
    return {Cta::Div(a, 127.0F), a < 0x1p-120F ? 0.0F : Cta::Div(127.0F, a)};
  }

  LONGSPEC_GPU int Of(float x) const {
    return inverse == 0.0F ? 0 : static_cast<int>(Cta::Rint(Cta::Mul(x, inverse)));
  }
};

// Four to a word, the first in its lowest byte.
struct Integers {
  uint32_t words[kQuantBlock / 4];
  float d;
};

template <class Cta>
LONGSPEC_GPU Integers IntegersBy(uint32_t largest, const float (&x)[kQuantBlock]) {
  const auto scale = IntegerScale<Cta>::By(largest);
  Integers out = {{}, scale.d};
  LONGSPEC_UNROLL
  for (int i = 0; i < kQuantBlock; ++i)
    out.words[i / 4] |= static_cast<uint32_t>(scale.Of(x[i]) & 255) << 8 * (i % 4);
  return out;
}

template <class Cta>
LONGSPEC_GPU Integers QueryIntegers(const float (&x)[kQuantBlock]) {
  uint32_t largest = 0;
  LONGSPEC_UNROLL
  for (int i = 0; i < kQuantBlock; ++i) {
    const uint32_t magnitude = Cta::ToBits(x[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  return IntegersBy<Cta>(largest, x);
}

// A number with a sign has the largest bits.
template <class Cta>
LONGSPEC_GPU Integers WeightIntegers(const float (&x)[kQuantBlock]) {
  uint32_t largest = 0;
  LONGSPEC_UNROLL
  for (int i = 0; i < kQuantBlock; ++i) {
    const uint32_t bits = Cta::ToBits(x[i]);
    largest = bits > largest ? bits : largest;
  }
  return IntegersBy<Cta>(largest, x);
}

// One key of a chunk, by words of four dimensions.
struct IntegerKey {
  const std::byte* codes;
  const std::byte* scales;

  static LONGSPEC_GPU IntegerKey At(const std::byte* keys, int head_dim, int offset) {
    const std::byte* block =
        keys + static_cast<size_t>(offset / kKeyGroup) * (kKeyGroup * KvBytes<KvType::kI8>(head_dim));
    const int lane = offset % kKeyGroup;
    return {block + lane * 4, block + kKeyGroup * head_dim + lane * 2};
  }
  LONGSPEC_GPU uint32_t Word(int i) const {
    return *reinterpret_cast<const uint32_t*>(codes + i * (4 * kKeyGroup));
  }
  // Of a block of 32 dimensions.
  template <class Cta>
  LONGSPEC_GPU float Scale(int block) const {
    return Cta::Half(U16At(scales + block * (2 * kKeyGroup)));
  }
};

// Of a value's row: the scale of a block of 32 dimensions.
template <class Cta>
LONGSPEC_GPU float IntegerValueScale(const std::byte* row, int head_dim, int block) {
  return Cta::Half(U16At(row + head_dim + 2 * block));
}

// Four bytes at an even address.
LONGSPEC_GPU uint32_t WordAt(const std::byte* p) {
  return U16At(p) | static_cast<uint32_t>(U16At(p + 2)) << 16;
}

// Words that hold four bytes each, so that word i holds byte i of each.
LONGSPEC_GPU void Transpose(uint32_t (&w)[4]) {
  constexpr uint32_t kEven = 0x00FF00FF;
  const uint32_t even = (w[0] & kEven) | (w[1] & kEven) << 8, odd = (w[0] >> 8 & kEven) | (w[1] & ~kEven);
  const uint32_t even2 = (w[2] & kEven) | (w[3] & kEven) << 8, odd2 = (w[2] >> 8 & kEven) | (w[3] & ~kEven);
  w[0] = (even & 0xFFFF) | even2 << 16;
  w[1] = (odd & 0xFFFF) | odd2 << 16;
  w[2] = even >> 16 | (even2 & 0xFFFF0000);
  w[3] = odd >> 16 | (odd2 & 0xFFFF0000);
}

}  // namespace longspec::kernels::gpu
