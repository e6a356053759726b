// SPDX-License-Identifier: Apache-2.0
//
// What avx512_bf16_*.cc share: VDPBF16PS adds two products in each of 16 lanes, which is what arithmetic
// "bf16" (ops.h) is made of. Everything lives in an unnamed namespace on purpose, as in avx512_math.h.
#pragma once

#include "kernels/cpu/avx512_math.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

inline __m512i Load32(const std::byte* p) { return _mm512_loadu_si512(p); }

// Two products in each lane: of pairs, the second first.
[[gnu::always_inline]] inline __m512 AddPairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// The first `left` of 32 numbers, rounded to bf16, denormals to zeros; zeros after them.
inline __m512i Round32(const float* x, int left) {
  const __m512 low = _mm512_maskz_loadu_ps(FirstLanes(left), x);
  const __m512 high = left > 16 ? _mm512_maskz_loadu_ps(FirstLanes(left - 16), x + 16) : _mm512_setzero_ps();
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// n numbers as bf16, then zeros up to a multiple of 32.
inline void RoundRow(const float* x, int n, void* out) {
  for (int i = 0; i < n; i += 32)
    _mm512_storeu_si512(static_cast<std::byte*>(out) + i * kBf16Bytes, Round32(x + i, n - i));
}

}  // namespace
}  // namespace longspec::kernels
