// SPDX-License-Identifier: Apache-2.0
#include <arm_neon.h>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"

namespace longspec::kernels::neon {
namespace {

// Four pairs: y0 = fma(x0, c, -(x1 s)), y1 = fma(x0, s, x1 c).
inline void Rotate(float32x4_t& x0, float32x4_t& x1, const float32x4x2_t& cos_sin) {
  const float32x4_t c = cos_sin.val[0], s = cos_sin.val[1];
  const float32x4_t y0 = vfmaq_f32(vnegq_f32(vmulq_f32(x1, s)), x0, c);
  x1 = vfmaq_f32(vmulq_f32(x1, c), x0, s);
  x0 = y0;
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
  const int n_pairs = n_rot / 2;
  int i = 0;
  for (; i + 4 <= n_pairs; i += 4) {
    const float32x4x2_t angles = vld2q_f32(cos_sin + 2 * i);
    if (pairing == RopePairing::kAdjacent) {
      float32x4x2_t v = vld2q_f32(x + 2 * i);
      Rotate(v.val[0], v.val[1], angles);
      vst2q_f32(x + 2 * i, v);
    } else {
      float32x4_t x0 = vld1q_f32(x + i), x1 = vld1q_f32(x + i + n_pairs);
      Rotate(x0, x1, angles);
      vst1q_f32(x + i, x0);
      vst1q_f32(x + i + n_pairs, x1);
    }
  }
  RotatePairs(x, i, n_rot, cos_sin, pairing);
}

}  // namespace longspec::kernels::neon
