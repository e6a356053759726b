// SPDX-License-Identifier: Apache-2.0
//
// Attention inside one chunk of 256 keys, AArch64: what float_attention.h makes of 16 numbers in four
// registers, and scores.
#include <arm_neon.h>

#include <cstring>

#include "kernels/cpu/float_attention.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"
#include "kernels/reference/reference.h"

namespace longspec::kernels::neon {
namespace {

// The low or high nibbles of 16 bytes, as integers -8 to 7.
inline int8x16_t Nibbles(uint8x16_t pairs, bool high) {
  const uint8x16_t nibbles = high ? vshrq_n_u8(pairs, 4) : vandq_u8(pairs, vdupq_n_u8(15));
  return vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8));
}

// The 16 numbers of integers with these scales.
inline Lanes16 Scaled16(int8x16_t integers, const Lanes16& scales) {
  const int16x8_t low = vmovl_s8(vget_low_s8(integers)), high = vmovl_high_s8(integers);
  return {{vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), scales.v[0]),
           vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(low)), scales.v[1]),
           vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), scales.v[2]),
           vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(high)), scales.v[3])}};
}

struct Set : Lanes {
  static constexpr bool kFetches = false, kEqualTiles = false;
  static constexpr int kTileRows = 6, kGatheredRows = 3;
  static constexpr int ValueVectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

  template <KvType T>
  static Vector Widen(const std::byte* codes, bool high, const Vector& scales) {
    const uint8x16_t bytes = LoadBytes(codes);
    return Scaled16(T == KvType::kQ8_0 ? vreinterpretq_s8_u8(bytes) : Nibbles(bytes, high), scales);
  }
  static Vector BroadcastHalf(const std::byte* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof(h));
    const float32x4_t d = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
    return {{d, d, d, d}};
  }
};

// ---- Scores: not those of float_attention.h, as products are with one lane of four dimensions.
// -------------------------------------------------------------------------------------------------------------

template <int R, int B>
using ScoreSums = Lanes16[R][B];

// One dimension of 16 keys for all rows; it is lane J of q.
template <int J, int R, int B>
[[gnu::always_inline]] inline void AddKeys(const float32x4_t (&q)[R], int b, const Lanes16& keys,
                                           ScoreSums<R, B>& acc) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) acc[r][b].v[v] = vfmaq_laneq_f32(acc[r][b].v[v], keys.v[v], q[r], J);
  }
}

// Dimensions 4 i + J of B blocks of 16 keys; `at` is where those of dimension 4 i begin.
template <KvType T, int J, int R, int B>
[[gnu::always_inline]] inline void AddDimension(const std::byte* at, size_t block_bytes,
                                                const float32x4_t (&q)[R],
                                                [[maybe_unused]] const Lanes16 (&scales)[B],
                                                ScoreSums<R, B>& acc) {
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    const std::byte* k = at + static_cast<size_t>(b) * block_bytes;
    if constexpr (kHasScales<T>) {
      const std::byte* codes = k + (T == KvType::kQ8_0 ? J : J / 2) * kKeyGroup;
      AddKeys<J, R, B>(q, b, Set::Widen<T>(codes, J % 2 == 1, scales[b]), acc);
    } else {
      AddKeys<J, R, B>(q, b, LoadAs<Set, T>(k + J * kCodeBytes16<T>), acc);
    }
  }
}

// Dimensions [begin, end), a multiple of 4 of them.
template <KvType T, int R, int B>
[[gnu::always_inline]] inline void SumDimensions(const std::byte* keys, size_t block_bytes, const float* q,
                                                 int head_dim, int begin, int end, const Lanes16 (&scales)[B],
                                                 ScoreSums<R, B>& acc) {
  for (int d = begin; d < end; d += 4) {
    float32x4_t four[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) four[r] = vld1q_f32(q + r * head_dim + d);
    const std::byte* at = keys + static_cast<size_t>(d) / 4 * (kCodeBytes16<T> * 4);
    AddDimension<T, 0, R, B>(at, block_bytes, four, scales, acc);
    AddDimension<T, 1, R, B>(at, block_bytes, four, scales, acc);
    AddDimension<T, 2, R, B>(at, block_bytes, four, scales, acc);
    AddDimension<T, 3, R, B>(at, block_bytes, four, scales, acc);
  }
}

// R query rows against B neighbouring blocks of 16 keys.
template <KvType T, int R, int B>
inline void ScoreTileByLane(const ScoresArgs& a, int row, int block) {
  const size_t block_bytes = static_cast<size_t>(a.head_dim) * kRowBytes16<T>;
  const std::byte* keys = a.keys + static_cast<size_t>(block) * block_bytes;
  const float* q = a.q + int64_t{row} * a.head_dim;
  ScoreSums<R, B> acc;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) acc[r][b] = Lanes::Zero();
  }
  Lanes16 scales[B] = {};
  if constexpr (kHasScales<T>) {
    const std::byte* at = keys + static_cast<size_t>(a.head_dim) * kCodeBytes16<T>;
    for (int d = 0; d < a.head_dim; d += kQuantBlock, at += 2 * kKeyGroup) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) scales[b] = Set::LoadHalf(at + static_cast<size_t>(b) * block_bytes);
      SumDimensions<T, R, B>(keys, block_bytes, q, a.head_dim, d, d + kQuantBlock, scales, acc);
    }
  } else {
    SumDimensions<T, R, B>(keys, block_bytes, q, a.head_dim, 0, a.head_dim, scales, acc);
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    float* out = a.out + (row + r) * a.out_stride + int64_t{block} * kKeyGroup;
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) vst1q_f32(out + 16 * b + 4 * v, vmulq_n_f32(acc[r][b].v[v], a.scale));
    }
  }
}

template <KvType T, int R, int B>
void ScoreRows(const ScoresArgs& a, int row) {
  int block = a.block_begin;
  for (; block + B <= a.block_end; block += B) ScoreTileByLane<T, R, B>(a, row, block);
  for (; block < a.block_end; ++block) ScoreTileByLane<T, R, 1>(a, row, block);
}

template <KvType T>
void ScoresByLane(const ScoresArgs& a) {
  // Scales take registers of their own.
  constexpr int kOne = kHasScales<T> ? 2 : 4, kTwo = kHasScales<T> ? 1 : 2;
  ForEachWholeTile<4>(a.n_rows, [&](auto rows, int row) {
    constexpr int kRows = decltype(rows)::kValue;
    ScoreRows<T, kRows, kRows == 1 ? kOne : kRows == 2 ? kTwo : 1>(a, row);
  });
}

// Their arithmetics flush denormals after rounding, where FPCR.FZ does it before.
bool IsBf16(KvType type) { return type == KvType::kBF16 || type == KvType::kBF16Amx; }

}  // namespace

void Scores(const ScoresArgs& a) {
  if (a.type == KvType::kI8) return ScoresI8(a);
  if (IsBf16(a.type)) return reference::Scores(a);
  WithKvType(a.type, [&](auto type) { ScoresByLane<decltype(type)::kValue>(a); });
}

void Values(const ValuesArgs& a) {
  if (a.type == KvType::kI8) return ValuesI8(a);
  if (IsBf16(a.type)) return reference::Values(a);
  WithKvType(a.type, [&](auto type) { ValuesOf<Set, decltype(type)::kValue>(a); });
}

void GatheredValues(const GatheredValuesArgs& a) {
  if (a.type == KvType::kI8) return GatheredValuesI8(a);
  if (IsBf16(a.type)) return reference::GatheredValues(a);
  WithKvType(a.type, [&](auto type) { GatheredOf<Set, decltype(type)::kValue>(a); });
}

void SoftmaxChunk(float* scores, int n, float* state) { SoftmaxChunkBy<Set>(scores, n, state); }
void MergeState(float* state, const float* chunk, int head_dim) { MergeStateBy<Set>(state, chunk, head_dim); }
void FinishState(const float* state, int head_dim, float* out) { FinishStateBy<Set>(state, head_dim, out); }

}  // namespace longspec::kernels::neon
