// SPDX-License-Identifier: Apache-2.0
//
// What the quantised formats of ops.h are made of, at compile time. Files built for different
// instruction sets include this, and must not emit functions another might link.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace longspec::kernels {

template <WeightFormat F>
inline constexpr bool kIsU4 = kWeightFormats[static_cast<int>(F)].bits == 4;
template <WeightFormat F>
inline constexpr bool kHasMin = kWeightFormats[static_cast<int>(F)].minima;
// Quants of one block of 32 for a group of 16 output rows.
template <WeightFormat F>
inline constexpr size_t kBlockBytes = kIsU4<F> ? 256 : 512;

// A format as the type of an argument.
template <WeightFormat F>
struct WeightFormatIs {
  static constexpr WeightFormat kValue = F;
};

namespace {  // NOLINT(google-build-namespaces): functions, so each file gets its own

// f(WeightFormatIs<format>()), with the format known when f is compiled, of those multiplied in "q8".
template <typename F>
[[gnu::always_inline]] inline void WithQ8Format(WeightFormat format, const F& f) {
  switch (format) {
    case WeightFormat::kU4:
      return f(WeightFormatIs<WeightFormat::kU4>());
    case WeightFormat::kU4Min:
      return f(WeightFormatIs<WeightFormat::kU4Min>());
    case WeightFormat::kS8:
      return f(WeightFormatIs<WeightFormat::kS8>());
    default:
      return f(WeightFormatIs<WeightFormat::kS8Min>());
  }
}

// The same of those multiplied in "q8k".
template <typename F>
[[gnu::always_inline]] inline void WithSuperFormat(WeightFormat format, const F& f) {
  switch (format) {
    case WeightFormat::kSuperU4Min:
      return f(WeightFormatIs<WeightFormat::kSuperU4Min>());
    case WeightFormat::kSuperU5Min:
      return f(WeightFormatIs<WeightFormat::kSuperU5Min>());
    default:
      return f(WeightFormatIs<WeightFormat::kSuperU6Halves>());
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
