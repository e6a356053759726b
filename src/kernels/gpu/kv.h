// SPDX-License-Identifier: Apache-2.0
//
// How stored keys and values are read (ops.h draws them).
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// Bytes of a key or value: the codes of 16 dimensions, and the scale of 32 if there are scales.
template <KvType T>
inline constexpr int kCode16 = T == KvType::kF32    ? 64
                               : T == KvType::kQ8_0 ? 16
                               : T == KvType::kI8   ? 16
                               : T == KvType::kQ4_0 ? 8
                                                    : 32;
template <KvType T>
inline constexpr bool kScaled = T == KvType::kQ8_0 || T == KvType::kQ4_0 || T == KvType::kI8;

template <KvType T>
LONGSPEC_GPU int CodesBytes(int head_dim) {
  return head_dim / 16 * kCode16<T>;
}
template <KvType T>
LONGSPEC_GPU int KvBytes(int head_dim) {
  return CodesBytes<T>(head_dim) + (kScaled<T> ? head_dim / 16 : 0);
}

LONGSPEC_GPU uint16_t U16At(const std::byte* p) { return *reinterpret_cast<const uint16_t*>(p); }

template <class Cta>
LONGSPEC_GPU float Bf16Value(uint16_t bits) {
  return Cta::Bits(static_cast<uint32_t>(bits) << 16);
}

// The number of a code without its scale. For kQ4_0 `high` chooses the nibble.
template <KvType T, class Cta>
LONGSPEC_GPU float CodeValue(const std::byte* code, bool high) {
  if constexpr (T == KvType::kF32) {
    return *reinterpret_cast<const float*>(code);
  } else if constexpr (T == KvType::kF16) {
    return Cta::Half(U16At(code));
  } else if constexpr (T == KvType::kQ8_0) {
    return static_cast<float>(static_cast<int8_t>(*code));
  } else {
    static_assert(T == KvType::kQ4_0, "bf16 keys and values are multiplied in an arithmetic of CPUs");
    const int pair = static_cast<int>(*code);
    return static_cast<float>((high ? pair >> 4 : pair & 15) - 8);
  }
}

// One key of a chunk: its column in a transposed block of 16.
template <KvType T>
struct Key {
  const std::byte* codes;
  const std::byte* scales;

  static LONGSPEC_GPU Key At(const std::byte* keys, int head_dim, int offset) {
    const std::byte* block =
        keys + static_cast<size_t>(offset / kKeyGroup) * (kKeyGroup * KvBytes<T>(head_dim));
    const int lane = offset % kKeyGroup;
    return {block + lane * (kCode16<T> >= 16 ? kCode16<T> / 16 : 1),
            block + kKeyGroup * CodesBytes<T>(head_dim) + lane * 2};
  }

  template <class Cta>
  LONGSPEC_GPU float Value(int d) const {
    if constexpr (T == KvType::kQ4_0) {
      return Cta::Mul(CodeValue<T, Cta>(codes + d / 2 * kKeyGroup, d % 2 == 1), Scale<Cta>(d));
    } else {
      const float value = CodeValue<T, Cta>(codes + d * kCode16<T>, false);
      return kScaled<T> ? Cta::Mul(value, Scale<Cta>(d)) : value;
    }
  }

 private:
  template <class Cta>
  LONGSPEC_GPU float Scale(int d) const {
    return Cta::Half(U16At(scales + d / kQuantBlock * (2 * kKeyGroup)));
  }
};

// Value d of a position's row.
template <KvType T, class Cta>
LONGSPEC_GPU float ValueAt(const std::byte* row, int head_dim, int d) {
  if constexpr (kScaled<T>) {
    const int block = d / kQuantBlock, i = d % kQuantBlock;
    const std::byte* code = row + (T == KvType::kQ4_0 ? 16 * block + i % 16 : d);
    return Cta::Mul(CodeValue<T, Cta>(code, i >= 16),
                    Cta::Half(U16At(row + CodesBytes<T>(head_dim) + 2 * block)));
  } else {
    return CodeValue<T, Cta>(row + d * (kCode16<T> / 16), false);
  }
}

}  // namespace longspec::kernels::gpu
