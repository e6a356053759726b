// SPDX-License-Identifier: Apache-2.0
//
// Attention in arithmetic "i8", AArch64 with dot products: fours of signed products are added at once.
#include <arm_neon.h>

#include <cstring>

#include "kernels/cpu/integer_attention.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"

namespace longspec::kernels::neon {
namespace {

inline int8x16_t Load16(const void* p) { return vld1q_s8(static_cast<const int8_t*>(p)); }

inline int8x16_t Four(const void* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof(four));
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// What numbers are multiplied with; 0 if they are too small.
inline float InverseOf(float largest) { return largest < kLeastMagnitude ? 0.0F : 127.0F / largest; }

struct Set {
  static constexpr int kQueryRows = 4, kValueRows = 4;
  static constexpr bool kPreparesKeys = false;

  struct Query {
    alignas(16) int8_t q[kMaxHeadDim];
    float d[kMostGroups];
  };
  using Weights = Query;  // 32 keys for each 32 dimensions
  using Keys = KeyBlock;

  static void PrepareQuery(const float* x, int head_dim, Query& query) {
    for (int d = 0; d < head_dim; d += kQuantBlock) query.d[d / kQuantBlock] = Quantize(x + d, query.q + d);
  }
  static void PrepareKeys(const std::byte* block, int /*head_dim*/, Keys& keys) { keys.block = block; }

  static void PrepareWeights(const float* p, const float (*scales)[kQuantBlock], int n_groups, int n,
                             Weights& weights) {
    for (int g = 0; g < n_groups; ++g)
      weights.d[g] = QuantizeWeights(p, scales[g], n, weights.q + g * kQuantBlock);
  }

  static float Quantize(const float* x, int8_t* q) {
    float32x4_t v[8];
    uint32x4_t most = vdupq_n_u32(0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      v[i] = vld1q_f32(x + 4 * i);
      most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    return Round(v, most, q);
  }

  static float QuantizeWeights(const float* p, const float* scales, int n, int8_t* q) {
    float seen[kQuantBlock] = {};
    if (n < kQuantBlock) {
      for (int i = 0; i < n; ++i) seen[i] = p[i] * scales[i];
    }
    float32x4_t w[8];
    uint32x4_t most = vdupq_n_u32(0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      w[i] = n < kQuantBlock ? vld1q_f32(seen + 4 * i)
                             : vmulq_f32(vld1q_f32(p + 4 * i), vld1q_f32(scales + 4 * i));
      most = vmaxq_u32(most, vreinterpretq_u32_f32(w[i]));
    }
    return Round(w, most, q);
  }

  template <int N>
  static void LoadScales(const std::byte* const (&rows)[kQuantBlock], int at, float (*scales)[kQuantBlock]) {
    uint16_t halves[N][kQuantBlock];
    for (int key = 0; key < kQuantBlock; ++key) {
      for (int g = 0; g < N; ++g) std::memcpy(&halves[g][key], rows[key] + at + 2 * g, 2);
    }
    for (int g = 0; g < N; ++g) {
      for (int i = 0; i < kQuantBlock; i += 4)
        vst1q_f32(scales[g] + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves[g] + i))));
    }
  }

  // Of each four keys the values of a dimension lie together: (8, 32 dimensions, 4).
  static void Interleave(const std::byte* const (&rows)[kQuantBlock], int dims, int8_t* values) {
    for (int key = 0; key < kQuantBlock; key += 4) {
      for (int d = dims; d < dims + kQuantBlock; d += 16, values += 64) {
        const int8x16_t v0 = Load16(rows[key] + d), v1 = Load16(rows[key + 1] + d);
        const int8x16_t v2 = Load16(rows[key + 2] + d), v3 = Load16(rows[key + 3] + d);
        const int16x8_t low01 = vreinterpretq_s16_s8(vzip1q_s8(v0, v1));
        const int16x8_t high01 = vreinterpretq_s16_s8(vzip2q_s8(v0, v1));
        const int16x8_t low23 = vreinterpretq_s16_s8(vzip1q_s8(v2, v3));
        const int16x8_t high23 = vreinterpretq_s16_s8(vzip2q_s8(v2, v3));
        vst1q_s8(values, vreinterpretq_s8_s16(vzip1q_s16(low01, low23)));
        vst1q_s8(values + 16, vreinterpretq_s8_s16(vzip2q_s16(low01, low23)));
        vst1q_s8(values + 32, vreinterpretq_s8_s16(vzip1q_s16(high01, high23)));
        vst1q_s8(values + 48, vreinterpretq_s8_s16(vzip2q_s16(high01, high23)));
      }
    }
  }

  template <int R>
  static void ScoreBlock(const Keys& keys, int head_dim, const Query* queries, float scale, float* out,
                         int64_t out_stride) {
    const std::byte* block = keys.block;
    const std::byte* scales = block + static_cast<size_t>(head_dim) * kKeyGroup;
    Lanes16 sums[R];
    for (Lanes16& sum : sums) sum = Lanes::Zero();
    for (int group = 0; group * kQuantBlock < head_dim; ++group, scales += 2 * kKeyGroup) {
      int32x4_t dots[R][4];
      for (auto& row : dots) {
        for (int32x4_t& dot : row) dot = vdupq_n_s32(0);
      }
#pragma GCC unroll 8
      for (int d = 0; d < kQuantBlock; d += 4, block += 4 * kKeyGroup) {
        int8x16_t k[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) k[v] = Load16(block + 16 * v);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const int8x16_t q = Four(queries[r].q + group * kQuantBlock + d);
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) dots[r][v] = vdotq_s32(dots[r][v], k[v], q);
        }
      }
      const Lanes16 dk = Joined(LoadHalf8(scales), LoadHalf8(scales + 16));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          const float32x4_t t = vmulq_n_f32(vcvtq_f32_s32(dots[r][v]), queries[r].d[group]);
          sums[r].v[v] = vfmaq_f32(sums[r].v[v], dk.v[v], t);
        }
      }
    }
    for (int r = 0; r < R; ++r, out += out_stride) {
      for (int v = 0; v < 4; ++v) vst1q_f32(out + 4 * v, vmulq_n_f32(sums[r].v[v], scale));
    }
  }

  template <int R>
  static void AddValues(const int8_t* values, const Weights* weights, int group, float* o, int64_t o_stride) {
    for (int r = 0; r < R; ++r, o += o_stride)
      AddRow(values, weights[r].q + group * kQuantBlock, weights[r].d[group], o);
  }

 private:
  static void AddRow(const int8_t* values, const int8_t* q, float d, float* o) {
    int32x4_t dots[8];
    for (int32x4_t& dot : dots) dot = vdupq_n_s32(0);
#pragma GCC unroll 8
    for (int four = 0; four < kQuantBlock; four += 4, values += 4 * kQuantBlock) {
      const int8x16_t weights = Four(q + four);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) dots[v] = vdotq_s32(dots[v], Load16(values + 16 * v), weights);
    }
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v)
      vst1q_f32(o + 4 * v, vfmaq_n_f32(vld1q_f32(o + 4 * v), vcvtq_f32_s32(dots[v]), d));
  }

  // `most`: bits of magnitudes.
  static float Round(const float32x4_t (&x)[8], uint32x4_t most, int8_t* q) {
    const uint32_t bits = vmaxvq_u32(most);
    if (bits >= 0x7F800000U) {
      std::memset(q, 0, kQuantBlock);
      return __builtin_nanf("");
    }
    float largest;
    std::memcpy(&largest, &bits, sizeof(largest));
    const float inverse = InverseOf(largest);
    for (int i = 0; i < 8; i += 2) {
      const int32x4_t low = vcvtnq_s32_f32(vmulq_n_f32(x[i], inverse));
      const int32x4_t high = vcvtnq_s32_f32(vmulq_n_f32(x[i + 1], inverse));
      vst1_s8(q + 4 * i, vmovn_s16(vcombine_s16(vmovn_s32(low), vmovn_s32(high))));
    }
    return largest / 127.0F;
  }
};

}  // namespace

void ScoresI8(const ScoresArgs& a) { IntegerScores<Set>(a); }
void ValuesI8(const ValuesArgs& a) { IntegerChunkValues<Set>(a); }
void GatheredValuesI8(const GatheredValuesArgs& a) { IntegerGatheredValues<Set>(a); }

}  // namespace longspec::kernels::neon
