// SPDX-License-Identifier: Apache-2.0
//
// What the quantised formats of ops.h are made of, at compile time. Files built for different
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

// A format as the type of an argument.
template <WeightFormat F>
struct WeightFormatIs {
  static constexpr WeightFormat kValue = F;
};

namespace {  // NOLINT(google-build-namespaces): functions, so each file gets its own

// f(WeightFormatIs<format>()), with the format known when f is compiled. REQUIRES: IsQuantized(format)
template <typename F>
[[gnu::always_inline]] inline void WithQuantizedFormat(WeightFormat format, const F& f) {
  switch (format) {
    case WeightFormat::kU4:
      return f(WeightFormatIs<WeightFormat::kU4>());
    case WeightFormat::kU4Min:
      return f(WeightFormatIs<WeightFormat::kU4Min>());
    case WeightFormat::kS8:
      return f(WeightFormatIs<WeightFormat::kS8>());
    case WeightFormat::kS8Min:
      return f(WeightFormatIs<WeightFormat::kS8Min>());
    case WeightFormat::kSuperU4Min:
      return f(WeightFormatIs<WeightFormat::kSuperU4Min>());
    case WeightFormat::kSuperS8Min:
      return f(WeightFormatIs<WeightFormat::kSuperS8Min>());
    default:
      return f(WeightFormatIs<WeightFormat::kSuperS8Halves>());
  }
}

// The same of formats that are not quantised.
template <typename F>
[[gnu::always_inline]] inline void WithFloatFormat(WeightFormat format, const F& f) {
  switch (format) {
    case WeightFormat::kF32:
      return f(WeightFormatIs<WeightFormat::kF32>());
    case WeightFormat::kF16:
      return f(WeightFormatIs<WeightFormat::kF16>());
    default:
      return f(WeightFormatIs<WeightFormat::kBF16>());
  }
}

}  // namespace

}  // namespace longspec::kernels
