// SPDX-License-Identifier: Apache-2.0
//
// Kernels that differ only in intrinsics from one instruction set to another are templates over a set's
// `Lanes` (avx2_math.h, avx512_math.h, neon_math.h): 16 numbers side by side, in as many registers as it
// takes. It has
//   Vector                               the 16 numbers
//   Zero(), All(x), Two(x, y)            Two: of the first two lanes, whatever the others hold
//   Load(const float*), Store(float*, v)
//   LoadPart(p, n, rest), StorePart(p, n, v)   n < 16 numbers; `rest`: in the other lanes
//   LoadFloats, LoadHalf, LoadBf16 (const std::byte*)   16 numbers of f32, f16, bf16
//   Add, Sub, Mul, Div (a, b), Negate(v), Scale(v, float)
//   Fma(a, b, sum)
//   Max(a, b)
//   Exp(Vector (&v)[N])                  ExpOf of reference/elementwise.cc, in place
//   StripeSum(v)                         the fixed tree over 16 stripes
//   MaxOf(v), First(v), Second(v)
//   Above(a, b), Equal(a, b)             a bit for each lane
// and says kExpTogether, of how many vectors Exp is best taken: one exponential is a chain of operations that
// wait for each other.
// For tiles of rows it says kLoadsAll, whether there are registers for all vectors that rows share, else one
// is loaded at a time; and has ReadAnew<R, n>(numbers), which may make a tile of R rows and n sums read its R
// numbers again for each of these vectors.
//
// Kernels stay apart where sets differ in more: products of integers (maddubs, VPDPBUSD, SDOT), rotation
// (each set has other shuffles), products with one lane of a vector.
//
// Everything lives in an unnamed namespace on purpose: files built for different instruction sets include
// this, and each gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

inline constexpr int kLanes = 16;

// LoadPart and StorePart of sets without masks.
template <typename Lanes>
struct PartsByCopy {
  static auto LoadPart(const float* p, int n, float rest = 0.0F) {
    float lanes[kLanes];
    for (float& lane : lanes) lane = rest;
    std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return Lanes::Load(lanes);
  }
  template <typename Vector>
  static void StorePart(float* p, int n, const Vector& v) {
    float lanes[kLanes];
    Lanes::Store(lanes, v);
    std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
  }
};

// Of V vectors that all rows of a tile share, so many are loaded before a row is multiplied with them.
template <typename Lanes, int V>
inline constexpr int kLoadedTogether = Lanes::kLoadsAll ? V : 1;

// acc[r][first + i] += numbers[r * stride] * value[i]. Stride: int makes compilers keep each row's own in a
// register, int64_t go from row to row.
template <typename Lanes, int R, int V, int N, typename Stride>
[[gnu::always_inline]] inline void AddProducts(const float* numbers, Stride stride,
                                               const typename Lanes::Vector (&value)[N], int first,
                                               typename Lanes::Vector (&acc)[R][V]) {
  numbers = Lanes::template ReadAnew<R, R * V>(numbers);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const typename Lanes::Vector number = Lanes::All(numbers[r * stride]);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) acc[r][first + i] = Lanes::Fma(number, value[i], acc[r][first + i]);
  }
}

}  // namespace
}  // namespace longspec::kernels
