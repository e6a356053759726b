// SPDX-License-Identifier: Apache-2.0
//
// What the types of cached keys and values are made of, at compile time. Constants only: files built for
// different instruction sets include this, and must not emit functions another might link.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace longspec::kernels {

template <KvType T>
inline constexpr bool kHasScales = T == KvType::kQ8_0 || T == KvType::kQ4_0;
// 32 values of one position: their codes, and these with their scale.
template <KvType T>
inline constexpr size_t kCodeBytes32 = T == KvType::kF32    ? 128
                                       : T == KvType::kQ8_0 ? 32
                                       : T == KvType::kQ4_0 ? 16
                                                            : 64;
// Codes of 16 values; head_dim is a multiple of 16, and of 32 where there are scales.
template <KvType T>
inline constexpr size_t kCodeBytes16 = kCodeBytes32<T> / 2;
template <KvType T>
inline constexpr size_t kScaleBytes32 = kHasScales<T> ? 2 : 0;

}  // namespace longspec::kernels
