// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/reference.h"

namespace longspec::kernels::reference {

// exp(x) = 2^n * exp(r) with n = rint(x / ln 2), r = x - n ln 2 in two steps, and the Cephes polynomial of
// degree 6 for exp(r) on [-ln 2 / 2, ln 2 / 2]. Relative error below 3e-7.
float ExpOf(float x) {
  if (std::isnan(x)) return x;
  if (x < -87.33654F) return 0.0F;  // keeps the result a normal number, or 0
  x = std::min(x, 88.37626F);
  const float n = std::nearbyint(x * 1.44269504F);
  float r = std::fma(n, -0.693359375F, x);
  r = std::fma(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = std::fma(p, r, 1.3981999507e-3F);
  p = std::fma(p, r, 8.3334519073e-3F);
  p = std::fma(p, r, 4.1665795894e-2F);
  p = std::fma(p, r, 1.6666665459e-1F);
  p = std::fma(p, r, 5.0000001201e-1F);
  const float y = std::fma(p, r * r, r) + 1.0F;
  return y * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

void RmsNorm(const float* x, const float* w, int n, float eps, float* y) {
  float stripe[16] = {};
  for (int i = 0; i < n; ++i) stripe[i % 16] = std::fma(x[i], x[i], stripe[i % 16]);
  for (int width = 8; width >= 1; width /= 2) {
    for (int j = 0; j < width; ++j) stripe[j] = stripe[j] + stripe[j + width];
  }
  const float r = 1.0F / std::sqrt(stripe[0] / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

void Rope(float* x, int n_rot, const float* cos_sin, RopePairing pairing) {
  for (int i = 0; i < n_rot / 2; ++i) {
    float& x0 = x[pairing == RopePairing::kAdjacent ? 2 * i : i];
    float& x1 = x[pairing == RopePairing::kAdjacent ? 2 * i + 1 : i + n_rot / 2];
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
    const float y0 = std::fma(x0, c, -(x1 * s));
    const float y1 = std::fma(x0, s, x1 * c);
    x0 = y0;
    x1 = y1;
  }
}

void SwiGlu(const float* g, const float* u, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = (g[i] * (1.0F / (1.0F + ExpOf(-g[i])))) * u[i];
}

void GeGlu(const float* g, const float* u, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    const float z = g[i] * std::fma(g[i] * g[i], kGeluCubic, kGeluLinear);
    out[i] = (g[i] * (1.0F / (1.0F + ExpOf(-z)))) * u[i];
  }
}

void Exp(const float* x, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = ExpOf(x[i]);
}

int Argmax(const float* x, int n) {
  int best = 0;
  for (int i = 1; i < n; ++i) {
    if (x[i] > x[best]) best = i;
  }
  return best;
}

void TopK(const float* x, int n, int k, float* values, int32_t* indices) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(),
                    [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  for (int i = 0; i < k; ++i) {
    indices[i] = order[static_cast<size_t>(i)];
    values[i] = x[indices[i]];
  }
}

}  // namespace longspec::kernels::reference
