// SPDX-License-Identifier: Apache-2.0
//
// Storing a position's key and value, AArch64.
#include <arm_neon.h>

#include <cstring>

#include "kernels/cpu/kv_store.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"

namespace longspec::kernels {
namespace {

// The first value of the largest magnitude; a NaN is larger than any number.
inline float LargestOf(const float* x) {
  uint32x4_t magnitude[kQuantBlock / 4];
  uint32x4_t most = vdupq_n_u32(0);
  for (int i = 0; i < kQuantBlock / 4; ++i) {
    magnitude[i] = vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + 4 * i)));
    most = vmaxq_u32(most, magnitude[i]);
  }
  const uint32x4_t all = vdupq_n_u32(vmaxvq_u32(most));
  int i = 0;
  while (vmaxvq_u32(vceqq_u32(magnitude[i], all)) == 0) ++i;
  const uint64_t equal = vget_lane_u64(vreinterpret_u64_u16(vmovn_u32(vceqq_u32(magnitude[i], all))), 0);
  return x[4 * i + __builtin_ctzll(equal) / 16];
}

inline uint16_t HalfBits(float f) {
  return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(f))), 0);
}

template <KvType T>
inline int32x4_t Codes(float32x4_t scaled) {
  if constexpr (T == KvType::kQ8_0) return vcvtnq_s32_f32(scaled);
  return vminq_s32(vcvtq_s32_f32(vaddq_f32(scaled, vdupq_n_f32(8.5F))), vdupq_n_s32(15));
}

template <KvType T>
inline QuantizedKv QuantizeKv(const float* x) {
  const float m = LargestOf(x);
  const float s = T == KvType::kQ8_0 ? __builtin_fabsf(m) / 127.0F : m / -8.0F;
  const uint16_t h = HalfBits(s);
  QuantizedKv block;
  const bool zero = (h & 0x7FFF) == 0, infinite = (h & 0x7C00) == 0x7C00;
  if (zero || infinite) {
    block.d = zero ? 0 : 0x7E00;
    std::memset(block.q, T == KvType::kQ8_0 ? 0 : 8, sizeof(block.q));
    return block;
  }
  block.d = h;
  const float inverse = 1.0F / s;
  for (int i = 0; i < kQuantBlock; i += 8) {
    const int32x4_t low = Codes<T>(vmulq_n_f32(vld1q_f32(x + i), inverse));
    const int32x4_t high = Codes<T>(vmulq_n_f32(vld1q_f32(x + i + 4), inverse));
    const int8x8_t bytes = vmovn_s16(vcombine_s16(vmovn_s32(low), vmovn_s32(high)));
    vst1_u8(block.q + i, vreinterpret_u8_s8(bytes));
  }
  return block;
}

// Four values as bf16: the upper half, rounded to nearest even; a NaN keeps its upper half and becomes quiet.
inline uint16x4_t BFloatBits(float32x4_t v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
}

struct Set : Lanes {
  static void StoreAs(KvType type, std::byte* out, const Vector& v) {
#pragma GCC unroll 4
    for (const float32x4_t& four : v.v) {
      if (type == KvType::kF32) {
        std::memcpy(out, &four, sizeof(four));
        out += sizeof(four);
        continue;
      }
      const uint16x4_t h = type == KvType::kF16 ? vreinterpret_u16_f16(vcvt_f16_f32(four)) : BFloatBits(four);
      std::memcpy(out, &h, sizeof(h));
      out += sizeof(h);
    }
  }
};

}  // namespace

namespace neon {

void StoreKv(const StoreKvArgs& a) { StoreKvBy<Set>(a); }

}  // namespace neon
}  // namespace longspec::kernels
