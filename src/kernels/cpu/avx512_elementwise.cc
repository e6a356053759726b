// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

// 16 (cos, sin) pairs apart.
struct Angles {
  __m512 cos, sin;
};

inline Angles LoadAngles(const float* cos_sin) {
  const __m512 a = _mm512_loadu_ps(cos_sin), b = _mm512_loadu_ps(cos_sin + 16);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
}

// z of a gate (ops.h).
struct Silu {
  static __m512 Z(__m512 g) { return g; }
};
struct Gelu {
  static __m512 Z(__m512 g) {
    const __m512 linear = _mm512_set1_ps(kGeluLinear), cubic = _mm512_set1_ps(kGeluCubic);
    return _mm512_mul_ps(g, _mm512_fmadd_ps(_mm512_mul_ps(g, g), cubic, linear));
  }
};

template <typename Gate>
inline void Gated(const float* g, const float* u, int n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0F), sign = _mm512_set1_ps(-0.0F);
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = FirstLanes(n - i);
    const __m512 gate = _mm512_maskz_loadu_ps(lanes, g + i);
    const __m512 e = ExpVector(_mm512_xor_ps(Gate::Z(gate), sign));
    const __m512 activated = _mm512_mul_ps(gate, _mm512_div_ps(one, _mm512_add_ps(one, e)));
    _mm512_mask_storeu_ps(out + i, lanes, _mm512_mul_ps(activated, _mm512_maskz_loadu_ps(lanes, u + i)));
  }
}

}  // namespace

void RmsNorm(const float* x, const float* w, int n, float eps, float* y) {
  __m512 stripes = _mm512_setzero_ps();
  for (int i = 0; i < n; i += 16) {
    const __m512 v =
        _mm512_maskz_loadu_ps(FirstLanes(n - i), x + i);  // padding adds fma(0, 0, stripe) = stripe
    stripes = _mm512_fmadd_ps(v, v, stripes);
  }
  const float scale = 1.0F / __builtin_sqrtf(StripeSum(stripes) / static_cast<float>(n) + eps);
  const __m512 r = _mm512_set1_ps(scale);
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = FirstLanes(n - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), r);
    _mm512_mask_storeu_ps(y + i, lanes, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(lanes, w + i)));
  }
}

void Rope(float* x, int n_rot, const float* cos_sin, RopePairing pairing) {
  const int half = n_rot / 2;
  int i = 0;
  if (pairing == RopePairing::kAdjacent) {
    // (x0, x1) pairs: fma(x0, c, -(x1 s)) and fma(x0, s, x1 c) are one fmaddsub of the pair's parts.
    for (; i + 8 <= half; i += 8) {
      const __m512 v = _mm512_loadu_ps(x + 2 * i);
      const __m512 cs = _mm512_loadu_ps(cos_sin + 2 * i);  // c s c s ...
      const __m512 x0 = _mm512_shuffle_ps(v, v, 0xA0), x1 = _mm512_shuffle_ps(v, v, 0xF5);
      const __m512 sc = _mm512_shuffle_ps(cs, cs, 0xB1);  // s c s c ...
      _mm512_storeu_ps(x + 2 * i, _mm512_fmaddsub_ps(x0, cs, _mm512_mul_ps(x1, sc)));
    }
  } else {
    for (; i + 16 <= half; i += 16) {
      const Angles angles = LoadAngles(cos_sin + 2 * i);
      const __m512 x0 = _mm512_loadu_ps(x + i), x1 = _mm512_loadu_ps(x + i + half);
      _mm512_storeu_ps(x + i, _mm512_fmsub_ps(x0, angles.cos, _mm512_mul_ps(x1, angles.sin)));
      _mm512_storeu_ps(x + i + half, _mm512_fmadd_ps(x0, angles.sin, _mm512_mul_ps(x1, angles.cos)));
    }
  }
  for (; i < half; ++i) {
    float* p0 = pairing == RopePairing::kAdjacent ? x + 2 * i : x + i;
    float* p1 = pairing == RopePairing::kAdjacent ? x + 2 * i + 1 : x + i + half;
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x0 = *p0, x1 = *p1;
    *p0 = __builtin_fmaf(x0, c, -(x1 * s));
    *p1 = __builtin_fmaf(x0, s, x1 * c);
  }
}

void SwiGlu(const float* g, const float* u, int n, float* out) { Gated<Silu>(g, u, n, out); }
void GeGlu(const float* g, const float* u, int n, float* out) { Gated<Gelu>(g, u, n, out); }

void Exp(const float* x, int n, float* out) {
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = FirstLanes(n - i);
    _mm512_mask_storeu_ps(out + i, lanes, ExpVector(_mm512_maskz_loadu_ps(lanes, x + i)));
  }
}

int Argmax(const float* x, int n) {
  // The largest value first, then its first place: no lane bookkeeping, and ties go to the lowest index.
  __m512 m = _mm512_set1_ps(x[0]);
  for (int i = 0; i < n; i += 16) m = _mm512_max_ps(m, _mm512_mask_loadu_ps(m, FirstLanes(n - i), x + i));
  const __m512 wanted = _mm512_set1_ps(MaxOf(m));
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = FirstLanes(n - i);
    const __mmask16 equal = _mm512_cmp_ps_mask(_mm512_maskz_loadu_ps(lanes, x + i), wanted, _CMP_EQ_OQ);
    const unsigned hit = static_cast<unsigned>(equal) & static_cast<unsigned>(lanes);
    if (hit != 0) return i + __builtin_ctz(hit);
  }
  return 0;
}

void TopK(const float* x, int n, int k, float* values, int32_t* indices) {
  // values/indices stay sorted; a vector of candidates is looked at only if one beats the worst kept value.
  // Later indices lose ties, so "greater than" is the whole test.
  int kept = 0;
  const auto insert = [&](float v, int32_t index) {
    int at = kept < k ? kept++ : k - 1;
    for (; at > 0 && values[at - 1] < v; --at) {
      values[at] = values[at - 1];
      indices[at] = indices[at - 1];
    }
    values[at] = v;
    indices[at] = index;
  };
  int i = 0;
  for (; i < n && kept < k; ++i) insert(x[i], i);
  for (; i < n; i += 16) {
    const __mmask16 lanes = FirstLanes(n - i);
    const __mmask16 better =
        _mm512_cmp_ps_mask(_mm512_maskz_loadu_ps(lanes, x + i), _mm512_set1_ps(values[k - 1]), _CMP_GT_OQ);
    for (unsigned hits = static_cast<unsigned>(better) & static_cast<unsigned>(lanes); hits != 0;
         hits &= hits - 1) {
      const int at = i + __builtin_ctz(hits);
      if (x[at] > values[k - 1]) insert(x[at], at);
    }
  }
}

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
