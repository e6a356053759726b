// SPDX-License-Identifier: Apache-2.0
//
// Vector helpers shared by neon_*.cc. Everything lives in an unnamed namespace on purpose: each file gets its
// own copy, so no code built with these instructions can be linked into a file built without them.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/lanes.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// 16 output rows, keys, head dimensions or stripes, in order.
struct Lanes16 {
  float32x4_t v[4];
};

// Bytes are loaded as bytes: packed data has no type that a pointer to something else might alias.
inline uint8x16_t LoadBytes(const std::byte* p) { return vld1q_u8(reinterpret_cast<const uint8_t*>(p)); }

inline float32x4_t LoadFloats(const std::byte* p) { return vreinterpretq_f32_u8(LoadBytes(p)); }

struct Lanes8 {
  float32x4_t v[2];
};

inline Lanes8 LoadHalf8(const std::byte* p) {
  const float16x8_t h = vreinterpretq_f16_u8(LoadBytes(p));
  return {{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
}

// 2^(byte - 128) of 8 bytes. Below 2^-126 there are two such numbers, whose bits are the greater here.
inline Lanes8 LoadExponents8(const std::byte* p) {
  const uint16x8_t bytes = vmovl_u8(vld1_u8(reinterpret_cast<const uint8_t*>(p)));
  Lanes8 lanes;
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const int32x4_t e = vreinterpretq_s32_u32(vmovl_u16(v == 0 ? vget_low_u16(bytes) : vget_high_u16(bytes)));
    const int32x4_t normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
    const int32x4_t tiny = vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(1)), 21);
    lanes.v[v] = vreinterpretq_f32_s32(vmaxq_s32(normal, tiny));
  }
  return lanes;
}

inline Lanes8 LoadBFloat8(const std::byte* p) {
  const uint16x8_t h = vreinterpretq_u16_u8(LoadBytes(p));
  return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
           vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))}};
}

inline Lanes16 Joined(const Lanes8& low, const Lanes8& high) {
  return {{low.v[0], low.v[1], high.v[0], high.v[1]}};
}

// reference/elementwise.cc: ExpOf, four at a time.
inline float32x4_t ExpVector(float32x4_t x) {
  const uint32x4_t tiny = vcltq_f32(x, vdupq_n_f32(-87.33654F));
  // Lanes that will be 0 are computed at 0, so that no exponent leaves its field.
  x = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), tiny));
  x = vminq_f32(x, vdupq_n_f32(88.37626F));
  const float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(1.44269504F)));
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-0.693359375F));
  r = vfmaq_f32(r, n, vdupq_n_f32(2.12194440e-4F));
  float32x4_t p = vdupq_n_f32(1.9875691500e-4F);
  p = vfmaq_f32(vdupq_n_f32(1.3981999507e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(8.3334519073e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.1665795894e-2F), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.6666665459e-1F), p, r);
  p = vfmaq_f32(vdupq_n_f32(5.0000001201e-1F), p, r);
  const float32x4_t y = vaddq_f32(vfmaq_f32(r, p, vmulq_f32(r, r)), vdupq_n_f32(1.0F));
  const int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
  const float32x4_t product = vmulq_f32(y, vreinterpretq_f32_s32(exponent));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(product), tiny));
}

// A bit for each lane, of which few are set, mostly none.
template <int N>
inline uint64_t BitsOf(const uint32x4_t (&lanes)[N]) {
  uint32x4_t any = lanes[0];
#pragma GCC unroll 16
  for (int i = 1; i < N; ++i) any = vorrq_u32(any, lanes[i]);
  if (vmaxvq_u32(any) == 0) return 0;
  const uint32x4_t places = {1, 2, 4, 8};
  uint64_t bits = 0;
  for (int i = 0; i < N; ++i) {
    bits |= static_cast<uint64_t>(vaddvq_u32(vandq_u32(lanes[i], places))) << static_cast<unsigned>(4 * i);
  }
  return bits;
}

// lanes.h.
struct Lanes : PartsByCopy<Lanes> {
  static constexpr int kExpTogether = 1;
  static constexpr bool kLoadsAll = false;
  using Vector = Lanes16;

  static Vector Zero() { return All(0.0F); }
  static Vector All(float x) {
    const float32x4_t all = vdupq_n_f32(x);
    return {{all, all, all, all}};
  }
  static Vector Two(float x, float y) {
    const float32x4_t zero = vdupq_n_f32(0.0F);
    return {{float32x4_t{x, y, 0.0F, 0.0F}, zero, zero, zero}};
  }
  static Vector Load(const float* p) {
    return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
  }
  static void Store(float* p, const Vector& v) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v.v[i]);
  }

  static Vector LoadFloats(const std::byte* p) {
    return {{kernels::LoadFloats(p), kernels::LoadFloats(p + 16), kernels::LoadFloats(p + 32),
             kernels::LoadFloats(p + 48)}};
  }
  static Vector LoadHalf(const std::byte* p) { return Joined(LoadHalf8(p), LoadHalf8(p + 16)); }
  static Vector LoadBf16(const std::byte* p) { return Joined(LoadBFloat8(p), LoadBFloat8(p + 16)); }

  static Vector Add(const Vector& a, const Vector& b) {
    return Each([](auto x, auto y) { return vaddq_f32(x, y); }, a, b);
  }
  static Vector Sub(const Vector& a, const Vector& b) {
    return Each([](auto x, auto y) { return vsubq_f32(x, y); }, a, b);
  }
  static Vector Mul(const Vector& a, const Vector& b) {
    return Each([](auto x, auto y) { return vmulq_f32(x, y); }, a, b);
  }
  static Vector Div(const Vector& a, const Vector& b) {
    return Each([](auto x, auto y) { return vdivq_f32(x, y); }, a, b);
  }
  static Vector Max(const Vector& a, const Vector& b) {
    return Each([](auto x, auto y) { return vmaxq_f32(x, y); }, a, b);
  }
  static Vector Negate(const Vector& v) {
    return {{vnegq_f32(v.v[0]), vnegq_f32(v.v[1]), vnegq_f32(v.v[2]), vnegq_f32(v.v[3])}};
  }
  static Vector Scale(const Vector& v, float by) {
    return {
        {vmulq_n_f32(v.v[0], by), vmulq_n_f32(v.v[1], by), vmulq_n_f32(v.v[2], by), vmulq_n_f32(v.v[3], by)}};
  }
  static Vector Fma(const Vector& a, const Vector& b, const Vector& sum) {
    return {{vfmaq_f32(sum.v[0], a.v[0], b.v[0]), vfmaq_f32(sum.v[1], a.v[1], b.v[1]),
             vfmaq_f32(sum.v[2], a.v[2], b.v[2]), vfmaq_f32(sum.v[3], a.v[3], b.v[3])}};
  }

  template <int, int>
  static const float* ReadAnew(const float* numbers) {
    return numbers;
  }
  template <int N>
  [[gnu::always_inline]] static void Exp(Vector (&v)[N]) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
#pragma GCC unroll 4
      for (float32x4_t& four : v[i].v) four = ExpVector(four);
    }
  }

  static float StripeSum(const Vector& stripes) {
    const float32x4_t four =
        vaddq_f32(vaddq_f32(stripes.v[0], stripes.v[2]), vaddq_f32(stripes.v[1], stripes.v[3]));
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
  }
  static float MaxOf(const Vector& v) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(v.v[0], v.v[1]), vmaxq_f32(v.v[2], v.v[3])));
  }
  static float First(const Vector& v) { return vgetq_lane_f32(v.v[0], 0); }
  static float Second(const Vector& v) { return vgetq_lane_f32(v.v[0], 1); }
  static unsigned Above(const Vector& a, const Vector& b) {
    return Bits([](auto x, auto y) { return vcgtq_f32(x, y); }, a, b);
  }
  static unsigned Equal(const Vector& a, const Vector& b) {
    return Bits([](auto x, auto y) { return vceqq_f32(x, y); }, a, b);
  }

 private:
  template <typename F>
  [[gnu::always_inline]] static Vector Each(const F& f, const Vector& a, const Vector& b) {
    return {{f(a.v[0], b.v[0]), f(a.v[1], b.v[1]), f(a.v[2], b.v[2]), f(a.v[3], b.v[3])}};
  }
  template <typename F>
  [[gnu::always_inline]] static unsigned Bits(const F& f, const Vector& a, const Vector& b) {
    const uint32x4_t lanes[4] = {f(a.v[0], b.v[0]), f(a.v[1], b.v[1]), f(a.v[2], b.v[2]), f(a.v[3], b.v[3])};
    return static_cast<unsigned>(BitsOf(lanes));
  }
};

}  // namespace
}  // namespace longspec::kernels
