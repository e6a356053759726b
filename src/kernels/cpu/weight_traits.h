// SPDX-License-Identifier: Apache-2.0
//
// What the quantised formats of ops.h are made of, at compile time. Constants only: files built for different
// instruction sets include this, and must not emit functions another might link.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace longspec::kernels {

template <WeightFormat F>
inline constexpr bool kIsU4 =
    F == WeightFormat::kU4 || F == WeightFormat::kU4Min || F == WeightFormat::kSuperU4Min;
template <WeightFormat F>
inline constexpr bool kHasMin = F == WeightFormat::kU4Min || F == WeightFormat::kS8Min ||
                                F == WeightFormat::kSuperU4Min || F == WeightFormat::kSuperS8Min;
// A scale for each half of a block.
template <WeightFormat F>
inline constexpr bool kHasHalves = F == WeightFormat::kSuperS8Halves;
template <WeightFormat F>
inline constexpr bool kHasSuper =
    F == WeightFormat::kSuperU4Min || F == WeightFormat::kSuperS8Min || kHasHalves<F>;
// Quants of one block of 32 for a group of 16 output rows.
template <WeightFormat F>
inline constexpr size_t kBlockBytes = kIsU4<F> ? 256 : 512;

}  // namespace longspec::kernels
