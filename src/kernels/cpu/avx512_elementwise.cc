// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/elementwise.h"

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

}  // namespace

void RmsNorm(const float* x, const float* w, int n, float eps, float* y) {
  RmsNormBy<Lanes>(x, w, n, eps, y);
}
void SwiGlu(const float* g, const float* u, int n, float* out) { GatedBy<Lanes, Silu>(g, u, n, out); }
void GeGlu(const float* g, const float* u, int n, float* out) { GatedBy<Lanes, Gelu>(g, u, n, out); }
void Exp(const float* x, int n, float* out) { ExpBy<Lanes>(x, n, out); }
int Argmax(const float* x, int n) { return ArgmaxBy<Lanes>(x, n); }
void TopK(const float* x, int n, int k, float* values, int32_t* indices) {
  TopKBy<Lanes>(x, n, k, values, indices);
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
  RotatePairs(x, i, n_rot, cos_sin, pairing);
}

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
