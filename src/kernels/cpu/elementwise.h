// SPDX-License-Identifier: Apache-2.0
//
// Operations on rows of numbers, over a set's `Lanes` (lanes.h). Everything lives in an unnamed namespace on
// purpose: files built for different instruction sets include this, and each gets its own copy.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

template <typename Lanes>
inline void RmsNormBy(const float* x, const float* w, int n, float eps, float* y) {
  using Vector = typename Lanes::Vector;
  const int whole = n & ~(kLanes - 1);
  Vector stripes = Lanes::Zero();
  for (int i = 0; i < whole; i += kLanes) {
    const Vector v = Lanes::Load(x + i);
    stripes = Lanes::Fma(v, v, stripes);
  }
  if (whole < n) {
    const Vector v = Lanes::LoadPart(x + whole, n - whole);  // padding adds fma(0, 0, stripe) = stripe
    stripes = Lanes::Fma(v, v, stripes);
  }
  const float scale = 1.0F / __builtin_sqrtf(Lanes::StripeSum(stripes) / static_cast<float>(n) + eps);
  for (int i = 0; i < whole; i += kLanes) {
    Lanes::Store(y + i, Lanes::Mul(Lanes::Scale(Lanes::Load(x + i), scale), Lanes::Load(w + i)));
  }
  if (whole < n) {
    const Vector scaled = Lanes::Scale(Lanes::LoadPart(x + whole, n - whole), scale);
    Lanes::StorePart(y + whole, n - whole, Lanes::Mul(scaled, Lanes::LoadPart(w + whole, n - whole)));
  }
}

// z of a gate (ops.h).
struct Silu {
  template <typename Lanes>
  static typename Lanes::Vector Z(const typename Lanes::Vector& g) {
    return g;
  }
};
struct Gelu {
  template <typename Lanes>
  static typename Lanes::Vector Z(const typename Lanes::Vector& g) {
    const typename Lanes::Vector linear = Lanes::All(kGeluLinear), cubic = Lanes::All(kGeluCubic);
    return Lanes::Mul(g, Lanes::Fma(Lanes::Mul(g, g), cubic, linear));
  }
};

template <typename Lanes, typename Gate>
inline typename Lanes::Vector GatedVector(const typename Lanes::Vector& g, const typename Lanes::Vector& u) {
  const typename Lanes::Vector one = Lanes::All(1.0F);
  typename Lanes::Vector e[1] = {Lanes::Negate(Gate::template Z<Lanes>(g))};
  Lanes::Exp(e);
  return Lanes::Mul(Lanes::Mul(g, Lanes::Div(one, Lanes::Add(one, e[0]))), u);
}

template <typename Lanes, typename Gate>
inline void GatedBy(const float* g, const float* u, int n, float* out) {
  const int whole = n & ~(kLanes - 1), rest = n - whole;
  for (int i = 0; i < whole; i += kLanes) {
    Lanes::Store(out + i, GatedVector<Lanes, Gate>(Lanes::Load(g + i), Lanes::Load(u + i)));
  }
  if (rest > 0) {
    const auto last =
        GatedVector<Lanes, Gate>(Lanes::LoadPart(g + whole, rest), Lanes::LoadPart(u + whole, rest));
    Lanes::StorePart(out + whole, rest, last);
  }
}

template <typename Lanes>
inline void ExpBy(const float* x, int n, float* out) {
  const int whole = n & ~(kLanes - 1), rest = n - whole;
  typename Lanes::Vector e[1];
  for (int i = 0; i < whole; i += kLanes) {
    e[0] = Lanes::Load(x + i);
    Lanes::Exp(e);
    Lanes::Store(out + i, e[0]);
  }
  if (rest > 0) {
    e[0] = Lanes::LoadPart(x + whole, rest);
    Lanes::Exp(e);
    Lanes::StorePart(out + whole, rest, e[0]);
  }
}

template <typename Lanes>
inline int ArgmaxBy(const float* x, int n) {
  // The largest value first, then its first place: no lane bookkeeping, and ties go to the lowest index.
  const int whole = n & ~(kLanes - 1);
  typename Lanes::Vector m = Lanes::All(x[0]);
  for (int i = 0; i < whole; i += kLanes) m = Lanes::Max(m, Lanes::Load(x + i));
  if (whole < n) m = Lanes::Max(m, Lanes::LoadPart(x + whole, n - whole, x[0]));
  const float largest = Lanes::MaxOf(m);
  const typename Lanes::Vector wanted = Lanes::All(largest);
  for (int i = 0; i < whole; i += kLanes) {
    const unsigned hit = Lanes::Equal(Lanes::Load(x + i), wanted);
    if (hit != 0) return i + __builtin_ctz(hit);
  }
  for (int i = whole; i < n; ++i) {
    if (x[i] == largest) return i;
  }
  return 0;
}

template <typename Lanes>
inline void TopKBy(const float* x, int n, int k, float* values, int32_t* indices) {
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
  for (; i + kLanes <= n; i += kLanes) {
    unsigned hits = Lanes::Above(Lanes::Load(x + i), Lanes::All(values[k - 1]));
    for (; hits != 0; hits &= hits - 1) {
      const int at = i + __builtin_ctz(hits);
      if (x[at] > values[k - 1]) insert(x[at], at);
    }
  }
  for (; i < n; ++i) {
    if (x[i] > values[k - 1]) insert(x[i], i);
  }
}

// One pair of numbers.
inline void RotatePair(float* p0, float* p1, float c, float s) {
  const float x0 = *p0, x1 = *p1;
  *p0 = __builtin_fmaf(x0, c, -(x1 * s));
  *p1 = __builtin_fmaf(x0, s, x1 * c);
}

// Pairs [begin, n_rot / 2), one by one.
inline void RotatePairs(float* x, int begin, int n_rot, const float* cos_sin, RopePairing pairing) {
  const bool adjacent = pairing == RopePairing::kAdjacent;
  for (int i = begin; i < n_rot / 2; ++i) {
    float* p0 = adjacent ? x + 2 * i : x + i;
    float* p1 = adjacent ? x + 2 * i + 1 : x + i + n_rot / 2;
    RotatePair(p0, p1, cos_sin[2 * i], cos_sin[2 * i + 1]);
  }
}

}  // namespace
}  // namespace longspec::kernels
