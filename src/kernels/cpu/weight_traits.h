// SPDX-License-Identifier: Apache-2.0
//
// What the quantised formats of ops.h are made of, at compile time. Files built for different
// instruction sets include this, and must not emit functions another might link.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"
#include "tensor/weight_lines.h"

namespace longspec::kernels {

template <WeightFormat F>
inline constexpr int kBits = kWeightFormats[static_cast<int>(F)].bits;
template <WeightFormat F>
inline constexpr bool kIsU4 = kBits<F> == 4;
template <WeightFormat F>
inline constexpr int kOffset = kWeightFormats[static_cast<int>(F)].offset;
template <WeightFormat F>
inline constexpr bool kHasMin = kWeightFormats[static_cast<int>(F)].minima;
template <WeightFormat F>
inline constexpr bool kHasHalves = kWeightFormats[static_cast<int>(F)].halves;
template <WeightFormat F>
inline constexpr bool kHasCodes = kWeightFormats[static_cast<int>(F)].values != nullptr;
template <WeightFormat F>
inline constexpr size_t kScaleBytes = kWeightFormats[static_cast<int>(F)].scale_bytes;
// w + offset of each code.
struct ByteOfCode {
  alignas(16) uint8_t of[16];
};
template <WeightFormat F>
inline constexpr ByteOfCode kByteOfCode = [] {
  ByteOfCode bytes = {};
  for (int i = 0; i < 16; ++i) {
    bytes.of[i] = static_cast<uint8_t>(kWeightFormats[static_cast<int>(F)].values[i] + kOffset<F>);
  }
  return bytes;
}();
// Quants of one block of 32 for a group of 16 output rows.
template <WeightFormat F>
inline constexpr size_t kBlockBytes = 64 * kBits<F>;
// Line J of its weights, and part P of that.
template <WeightFormat F, int J>
inline constexpr WeightLine kWeightLine = kWeightLines[kBits<F>].of[J];
template <WeightFormat F, int J, int P>
inline constexpr LinePart kLinePart = kWeightLine<F, J>.parts[P];
template <WeightFormat F, int J, int P>
inline constexpr int kPartMask = ((1 << kLinePart<F, J, P>.n) - 1) << kLinePart<F, J, P>.to;

// Some of the eight lines.
template <int... J>
struct Lines {};

// How the weights of a block lie: as they were packed, or unpacked, line J at byte 64 J.
enum class Quants : uint8_t { kPacked, kBytes };
inline constexpr size_t kByteBlock = 512;  // bytes of an unpacked block
template <WeightFormat F, Quants Q>
inline constexpr size_t kQuantBytes = Q == Quants::kPacked ? kBlockBytes<F> : kByteBlock;

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
    case WeightFormat::kU5:
      return f(WeightFormatIs<WeightFormat::kU5>());
    case WeightFormat::kU5Min:
      return f(WeightFormatIs<WeightFormat::kU5Min>());
    case WeightFormat::kU4Iq:
      return f(WeightFormatIs<WeightFormat::kU4Iq>());
    case WeightFormat::kU4Fp:
      return f(WeightFormatIs<WeightFormat::kU4Fp>());
    default:
      return f(WeightFormatIs<WeightFormat::kS8>());
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
    case WeightFormat::kSuperU3Halves:
      return f(WeightFormatIs<WeightFormat::kSuperU3Halves>());
    case WeightFormat::kSuperU4Iq:
      return f(WeightFormatIs<WeightFormat::kSuperU4Iq>());
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
