// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/elementwise.h"

namespace longspec::kernels::avx2 {

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
  RotatePairs(x, i, n_rot, cos_sin, pairing);
}

}  // namespace longspec::kernels::avx2
