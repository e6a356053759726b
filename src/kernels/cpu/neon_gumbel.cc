// SPDX-License-Identifier: Apache-2.0
#include <arm_neon.h>

#include "kernels/cpu/gumbel_search.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"

namespace longspec::kernels::neon {
namespace {

// Four words of four counters.
struct Words {
  uint32x4_t w[4];
};

struct Products {
  uint32x4_t low, high;
};

inline Products Multiply(uint32x4_t a, uint32_t b) {
  const uint32x4_t by = vdupq_n_u32(b);
  const uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(by)));
  const uint32x4_t second = vreinterpretq_u32_u64(vmull_high_u32(a, by));
  return {vuzp1q_u32(first, second), vuzp2q_u32(first, second)};
}

inline uint32x4_t Xor3(uint32x4_t a, uint32x4_t b, uint32_t c) {
  return veorq_u32(a, veorq_u32(b, vdupq_n_u32(c)));
}

inline Words NextRound(const Words& c, const uint32_t (&key)[2]) {
  const Products p0 = Multiply(c.w[0], kPhiloxM0), p1 = Multiply(c.w[2], kPhiloxM1);
  return {{Xor3(p1.high, c.w[1], key[0]), p1.low, Xor3(p0.high, c.w[3], key[1]), p0.low}};
}

struct GumbelLanes {
  static uint64_t Equal(const float* x, float value) {
    uint32x4_t equal[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) equal[i] = vceqq_f32(vld1q_f32(x + 4 * i), vdupq_n_f32(value));
    return BitsOf(equal);
  }

  struct Thresholds {
    int32x4_t t[16];
  };

  static Thresholds ThresholdsOf(const float* x, float largest, float scale, float offset) {
    Thresholds out;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const float32x4_t below = vsubq_f32(vld1q_f32(x + 4 * i), vdupq_n_f32(largest));
      out.t[i] = vcvtnq_s32_f32(vfmaq_f32(vdupq_n_f32(offset), below, vdupq_n_f32(scale)));
    }
    return out;
  }

  static bool AnyAbove(const Thresholds& t, int32_t limit) {
    int32x4_t most = t.t[0];
#pragma GCC unroll 16
    for (int i = 1; i < 16; ++i) most = vmaxq_s32(most, t.t[i]);
    return vmaxvq_s32(most) > limit;
  }

  static uint64_t Hits(const Thresholds& t, uint32_t counter, const RoundKeys& keys) {
    uint32x4_t hits[16];
    // Eight counters at a time: their words are eight registers.
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const uint32x4_t zero = vdupq_n_u32(0), places = {0, 1, 2, 3};
      const uint32x4_t first = vaddq_u32(vdupq_n_u32(counter + static_cast<uint32_t>(8 * half)), places);
      Words a = {{first, zero, zero, zero}}, b = {{vaddq_u32(first, vdupq_n_u32(4)), zero, zero, zero}};
#pragma GCC unroll 10
      for (int round = 0; round < kPhiloxRounds; ++round) {
        a = NextRound(a, keys.k[round]);
        b = NextRound(b, keys.k[round]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * i + 2 * half;
        hits[at] = vcgtq_s32(t.t[at], FloatBits(a.w[i]));
        hits[at + 1] = vcgtq_s32(t.t[at + 1], FloatBits(b.w[i]));
      }
    }
    return BitsOf(hits);
  }

 private:
  static int32x4_t FloatBits(uint32x4_t bits) {
    return vreinterpretq_s32_f32(vcvtq_f32_u32(vshrq_n_u32(vmvnq_u32(bits), 1)));
  }
};

}  // namespace

int GumbelArgmax(const GumbelArgs& a) { return GumbelArgmaxBy<GumbelLanes>(a); }

}  // namespace longspec::kernels::neon
