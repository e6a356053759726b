// SPDX-License-Identifier: Apache-2.0
//
// Arithmetics "bf16" and "bf16-amx" (ops.h), as loops over one sum of products.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/ops.h"
#include "tensor/half.h"

namespace longspec::kernels::reference {

inline float WithoutDenormals(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

inline float RoundToBf16(float x) { return BFloat16ToFloat(FloatToBFloat16(WithoutDenormals(x))); }

// a and b are bf16 numbers, or b is 1.
inline float Step(float acc, float a, float b) {
  acc = WithoutDenormals(acc);
  a = WithoutDenormals(a);
  b = WithoutDenormals(b);
  const float sum = std::fma(a, b, acc);
  if (!(std::fabs(sum) <= 0x1p-126F)) return sum;
  // Whether it is smaller is asked of the sum rounded with any exponent: f32 has fewer digits down here.
  // Terms whose sum is that small are so small themselves that this cannot overflow, or cancel exactly.
  const float scaled = std::fma(a * 0x1p64F, b, acc * 0x1p64F);
  return std::fabs(scaled) < 0x1p-62F ? std::copysign(0.0F, scaled) : sum;
}

// acc and the products a(k) * b(k) of k = 0 .. n - 1, which are bf16 numbers.
template <typename A, typename B>
float SumInPairs(float acc, int64_t n, const A& a, const B& b) {
  for (int64_t k = 0; k < n; k += 2) {
    acc = k + 1 < n ? Step(acc, a(k + 1), b(k + 1)) : Step(acc, 0.0F, 0.0F);
    acc = Step(acc, a(k), b(k));
  }
  return acc;
}

template <typename A, typename B>
float SumInTiles(float acc, int64_t n, const A& a, const B& b) {
  for (int64_t block = 0; block < n; block += kAmxBlock) {
    float sums[2] = {};  // of even and of odd k
    for (int64_t k = block; k < block + kAmxBlock; ++k) {
      float& sum = sums[k % 2];
      sum = k < n ? Step(sum, a(k), b(k)) : Step(sum, 0.0F, 0.0F);
    }
    acc = Step(acc, Step(sums[1], sums[0], 1.0F), 1.0F);
  }
  return acc;
}

}  // namespace longspec::kernels::reference
