// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"

namespace longspec::kernels::avx2 {
namespace {

// The last n < 8 values of a row, zero-padded.
inline __m256 LoadPart(const float* p, int n) {
  float lanes[8] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return _mm256_loadu_ps(lanes);
}

inline void StorePart(float* p, int n, __m256 v) {
  float lanes[8];
  _mm256_storeu_ps(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

// z of a gate (ops.h).
struct Silu {
  static __m256 Z(__m256 g) { return g; }
};
struct Gelu {
  static __m256 Z(__m256 g) {
    const __m256 linear = _mm256_set1_ps(kGeluLinear), cubic = _mm256_set1_ps(kGeluCubic);
    return _mm256_mul_ps(g, _mm256_fmadd_ps(_mm256_mul_ps(g, g), cubic, linear));
  }
};

template <typename Gate>
inline __m256 GatedVector(__m256 g, __m256 u) {
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 e = ExpVector(_mm256_xor_ps(Gate::Z(g), _mm256_set1_ps(-0.0F)));
  return _mm256_mul_ps(_mm256_mul_ps(g, _mm256_div_ps(one, _mm256_add_ps(one, e))), u);
}

template <typename Gate>
inline void Gated(const float* g, const float* u, int n, float* out) {
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, GatedVector<Gate>(_mm256_loadu_ps(g + i), _mm256_loadu_ps(u + i)));
  }
  if (i < n) StorePart(out + i, n - i, GatedVector<Gate>(LoadPart(g + i, n - i), LoadPart(u + i, n - i)));
}

}  // namespace

void RmsNorm(const float* x, const float* w, int n, float eps, float* y) {
  __m256 lo = _mm256_setzero_ps(), hi = _mm256_setzero_ps();
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
    lo = _mm256_fmadd_ps(a, a, lo);
    hi = _mm256_fmadd_ps(b, b, hi);
  }
  if (i < n) {  // padding adds fma(0, 0, stripe) = stripe
    const __m256 a = LoadPart(x + i, n - i < 8 ? n - i : 8);
    lo = _mm256_fmadd_ps(a, a, lo);
    if (n - i > 8) {
      const __m256 b = LoadPart(x + i + 8, n - i - 8);
      hi = _mm256_fmadd_ps(b, b, hi);
    }
  }
  const float scale = 1.0F / __builtin_sqrtf(StripeSum(lo, hi) / static_cast<float>(n) + eps);
  const __m256 r = _mm256_set1_ps(scale);
  for (i = 0; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), r), _mm256_loadu_ps(w + i)));
  }
  for (; i < n; ++i) y[i] = (x[i] * scale) * w[i];
}

void Rope(float* x, int n_rot, const float* cos_sin, RopePairing pairing) {
  int i = 0;
  if (pairing == RopePairing::kAdjacent) {
    // (x0, x1) pairs: fma(x0, c, -(x1 s)) and fma(x0, s, x1 c) are one fmaddsub of the pair's parts.
    for (; i + 4 <= n_rot / 2; i += 4) {
      const __m256 v = _mm256_loadu_ps(x + 2 * i);
      const __m256 cs = _mm256_loadu_ps(cos_sin + 2 * i);  // c s c s ...
      const __m256 x0 = _mm256_moveldup_ps(v), x1 = _mm256_movehdup_ps(v);
      const __m256 sc = _mm256_permute_ps(cs, 0xB1);  // s c s c ...
      _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(x0, cs, _mm256_mul_ps(x1, sc)));
    }
  }
  for (; i < n_rot / 2; ++i) {
    float* p0 = pairing == RopePairing::kAdjacent ? x + 2 * i : x + i;
    float* p1 = pairing == RopePairing::kAdjacent ? x + 2 * i + 1 : x + i + n_rot / 2;
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x0 = *p0, x1 = *p1;
    *p0 = __builtin_fmaf(x0, c, -(x1 * s));
    *p1 = __builtin_fmaf(x0, s, x1 * c);
  }
}

void SwiGlu(const float* g, const float* u, int n, float* out) { Gated<Silu>(g, u, n, out); }
void GeGlu(const float* g, const float* u, int n, float* out) { Gated<Gelu>(g, u, n, out); }

void Exp(const float* x, int n, float* out) {
  int i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, ExpVector(_mm256_loadu_ps(x + i)));
  if (i < n) StorePart(out + i, n - i, ExpVector(LoadPart(x + i, n - i)));
}

int Argmax(const float* x, int n) {
  // The largest value first, then its first place: no lane bookkeeping, and ties go to the lowest index.
  float largest = x[0];
  int i = 0;
  if (n >= 8) {
    __m256 m = _mm256_loadu_ps(x);
    for (i = 8; i + 8 <= n; i += 8) m = _mm256_max_ps(m, _mm256_loadu_ps(x + i));
    largest = MaxOf(m);
  }
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  const __m256 wanted = _mm256_set1_ps(largest);
  for (i = 0; i + 8 <= n; i += 8) {
    const int hit = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), wanted, _CMP_EQ_OQ));
    if (hit != 0) return i + __builtin_ctz(static_cast<unsigned>(hit));
  }
  while (i < n - 1 && x[i] != largest) ++i;
  return i < n ? i : 0;
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
  for (; i + 8 <= n; i += 8) {
    const __m256 worst = _mm256_set1_ps(values[k - 1]);
    auto hits =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), worst, _CMP_GT_OQ)));
    for (; hits != 0; hits &= hits - 1) {
      const int at = i + __builtin_ctz(hits);
      if (x[at] > values[k - 1]) insert(x[at], at);
    }
  }
  for (; i < n; ++i) {
    if (x[i] > values[k - 1]) insert(x[i], i);
  }
}

}  // namespace longspec::kernels::avx2
