// SPDX-License-Identifier: Apache-2.0
#include <arm_neon.h>

#include <cstring>

#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"

namespace longspec::kernels::neon {
namespace {

// The last n < 4 values of a row, zero-padded.
inline float32x4_t LoadPart(const float* p, int n) {
  float lanes[4] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return vld1q_f32(lanes);
}

inline void StorePart(float* p, int n, float32x4_t v) {
  float lanes[4];
  vst1q_f32(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

// z of a gate (ops.h).
struct Silu {
  static float32x4_t Z(float32x4_t g) { return g; }
};
struct Gelu {
  static float32x4_t Z(float32x4_t g) {
    const float32x4_t linear = vdupq_n_f32(kGeluLinear), cubic = vdupq_n_f32(kGeluCubic);
    return vmulq_f32(g, vfmaq_f32(linear, vmulq_f32(g, g), cubic));
  }
};

template <typename Gate>
inline float32x4_t GatedVector(float32x4_t g, float32x4_t u) {
  const float32x4_t one = vdupq_n_f32(1.0F);
  const float32x4_t e = ExpVector(vnegq_f32(Gate::Z(g)));
  return vmulq_f32(vmulq_f32(g, vdivq_f32(one, vaddq_f32(one, e))), u);
}

template <typename Gate>
inline void Gated(const float* g, const float* u, int n, float* out) {
  int i = 0;
  for (; i + 4 <= n; i += 4) vst1q_f32(out + i, GatedVector<Gate>(vld1q_f32(g + i), vld1q_f32(u + i)));
  if (i < n) StorePart(out + i, n - i, GatedVector<Gate>(LoadPart(g + i, n - i), LoadPart(u + i, n - i)));
}

inline void AddSquares(const float* x, Lanes16& stripes) {
  const Lanes16 a = LoadFloat16Lanes(x);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) stripes.v[v] = vfmaq_f32(stripes.v[v], a.v[v], a.v[v]);
}

// Four pairs: y0 = fma(x0, c, -(x1 s)), y1 = fma(x0, s, x1 c).
inline void Rotate(float32x4_t& x0, float32x4_t& x1, const float32x4x2_t& cos_sin) {
  const float32x4_t c = cos_sin.val[0], s = cos_sin.val[1];
  const float32x4_t y0 = vfmaq_f32(vnegq_f32(vmulq_f32(x1, s)), x0, c);
  x1 = vfmaq_f32(vmulq_f32(x1, c), x0, s);
  x0 = y0;
}

// Whether any lane of either is set.
inline bool Any(uint32x4_t a, uint32x4_t b) { return vmaxvq_u32(vorrq_u32(a, b)) != 0; }

}  // namespace

void RmsNorm(const float* x, const float* w, int n, float eps, float* y) {
  Lanes16 stripes = Zeros16();
  int i = 0;
  for (; i + 16 <= n; i += 16) AddSquares(x + i, stripes);
  if (i < n) {  // padding adds fma(0, 0, stripe) = stripe
    float rest[16] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
    AddSquares(rest, stripes);
  }
  const float scale = 1.0F / __builtin_sqrtf(StripeSum(stripes) / static_cast<float>(n) + eps);
  for (i = 0; i + 4 <= n; i += 4) {
    vst1q_f32(y + i, vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), scale), vld1q_f32(w + i)));
  }
  for (; i < n; ++i) y[i] = (x[i] * scale) * w[i];
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
  for (; i < n_pairs; ++i) {
    float* p0 = pairing == RopePairing::kAdjacent ? x + 2 * i : x + i;
    float* p1 = pairing == RopePairing::kAdjacent ? x + 2 * i + 1 : x + i + n_pairs;
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x0 = *p0, x1 = *p1;
    *p0 = __builtin_fmaf(x0, c, -(x1 * s));
    *p1 = __builtin_fmaf(x0, s, x1 * c);
  }
}

void SwiGlu(const float* g, const float* u, int n, float* out) { Gated<Silu>(g, u, n, out); }
void GeGlu(const float* g, const float* u, int n, float* out) { Gated<Gelu>(g, u, n, out); }

void Exp(const float* x, int n, float* out) {
  int i = 0;
  for (; i + 4 <= n; i += 4) vst1q_f32(out + i, ExpVector(vld1q_f32(x + i)));
  if (i < n) StorePart(out + i, n - i, ExpVector(LoadPart(x + i, n - i)));
}

int Argmax(const float* x, int n) {
  // The largest value first, then its first place: no lane bookkeeping, and ties go to the lowest index.
  float largest = x[0];
  int i = 0;
  if (n >= 16) {
    Lanes16 m = LoadFloat16Lanes(x);
    for (i = 16; i + 16 <= n; i += 16) m = Max16(m, LoadFloat16Lanes(x + i));
    largest = MaxOf(m);
  }
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  const float32x4_t wanted = vdupq_n_f32(largest);
  for (i = 0; i + 16 <= n; i += 16) {
    const Lanes16 lanes = LoadFloat16Lanes(x + i);
    if (Any(vorrq_u32(vceqq_f32(lanes.v[0], wanted), vceqq_f32(lanes.v[1], wanted)),
            vorrq_u32(vceqq_f32(lanes.v[2], wanted), vceqq_f32(lanes.v[3], wanted)))) {
      break;
    }
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
  while (i < n) {
    const float32x4_t worst = vdupq_n_f32(values[k - 1]);
    while (i + 8 <= n && !Any(vcgtq_f32(vld1q_f32(x + i), worst), vcgtq_f32(vld1q_f32(x + i + 4), worst)))
      i += 8;
    for (const int end = n - i < 8 ? n : i + 8; i < end; ++i) {
      if (x[i] > values[k - 1]) insert(x[i], i);
    }
  }
}

}  // namespace longspec::kernels::neon
