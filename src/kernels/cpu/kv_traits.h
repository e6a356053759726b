// SPDX-License-Identifier: Apache-2.0
//
// What the types of cached keys and values are made of, at compile time. Files built for
// different instruction sets include this, and must not emit functions another might link.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace longspec::kernels {

template <KvType T>
inline constexpr bool kHasScales = T == KvType::kQ8_0 || T == KvType::kQ4_0 || T == KvType::kI8;
// 32 values of one position: their codes, and these with their scale.
template <KvType T>
inline constexpr size_t kCodeBytes32 = T == KvType::kF32    ? 128
                                       : T == KvType::kQ8_0 ? 32
                                       : T == KvType::kI8   ? 32
                                       : T == KvType::kQ4_0 ? 16
                                                            : 64;
// Codes of 16 values; head_dim is a multiple of 16, and of 32 where there are scales.
template <KvType T>
inline constexpr size_t kCodeBytes16 = kCodeBytes32<T> / 2;
// Of the quantised types: bytes of one code.
template <KvType T>
inline constexpr size_t kCodeBytes = T == KvType::kI8 ? 4 : 1;
template <KvType T>
inline constexpr size_t kScaleBytes32 = kHasScales<T> ? 2 : 0;

// Dimensions or keys that are added as pairs, the second before the first: arithmetic "bf16" (ops.h).
template <KvType T>
inline constexpr bool kInPairs = T == KvType::kBF16;

// A type as the type of an argument.
template <KvType T>
struct KvTypeIs {
  static constexpr KvType kValue = T;
};

namespace {  // NOLINT(google-build-namespaces): functions, so each file gets its own

// Of dimensions or keys 0, 1, 2, ..., which is added as number i: 1, 0, 3, 2, ... in pairs.
template <KvType T>
[[gnu::always_inline]] inline int Ordered(int i) {
  return kInPairs<T> ? i ^ 1 : i;
}

// f(KvTypeIs<type>()), with the type known when f is compiled. Not for kI8, which is no sum of floats.
template <typename F>
[[gnu::always_inline]] inline void WithKvType(KvType type, const F& f) {
  switch (type) {
    case KvType::kF32:
      return f(KvTypeIs<KvType::kF32>());
    case KvType::kF16:
      return f(KvTypeIs<KvType::kF16>());
    case KvType::kBF16:
    case KvType::kBF16Amx:  // the same numbers
      return f(KvTypeIs<KvType::kBF16>());
    case KvType::kQ8_0:
      return f(KvTypeIs<KvType::kQ8_0>());
    case KvType::kQ4_0:
      return f(KvTypeIs<KvType::kQ4_0>());
    case KvType::kI8:
      return;
  }
}

// The same, for what is stored.
template <typename F>
[[gnu::always_inline]] inline void WithStoredType(KvType type, const F& f) {
  if (type == KvType::kI8) return f(KvTypeIs<KvType::kI8>());
  WithKvType(type, f);
}

}  // namespace
}  // namespace longspec::kernels
