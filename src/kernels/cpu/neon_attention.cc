// SPDX-License-Identifier: Apache-2.0
//
// Attention inside one chunk of 256 keys, AArch64. A block of 16 keys is four vectors of scores; 16 head
// dimensions are four vectors of values. Rows are all the query rows that look at one KV head (tree nodes
// times the heads of a group), so a tile of rows shares every key and value it loads.
#include <arm_neon.h>

#include <cstring>

#include "kernels/cpu/kv_traits.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"
#include "kernels/reference/reference.h"

namespace longspec::kernels::neon {
namespace {

// 16 values of one position.
template <KvType T>
inline constexpr size_t kRowBytes16 = kCodeBytes16<T> + kScaleBytes32<T> / 2;

// 16 neighbouring numbers of a floating-point type.
template <KvType T>
inline Lanes16 Load16(const std::byte* p) {
  if constexpr (T == KvType::kF32) {
    return {{LoadFloats(p), LoadFloats(p + 16), LoadFloats(p + 32), LoadFloats(p + 48)}};
  } else if constexpr (T == KvType::kF16) {
    return Joined(LoadHalf8(p), LoadHalf8(p + 16));
  } else {
    return Joined(LoadBFloat8(p), LoadBFloat8(p + 16));
  }
}

inline Lanes16 Broadcast16(const std::byte* scale) {
  uint16_t h;
  std::memcpy(&h, scale, sizeof(h));
  const float32x4_t d = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
  return {{d, d, d, d}};
}

// The low or high nibbles of 16 bytes, as integers -8 to 7.
inline int8x16_t Nibbles(uint8x16_t pairs, bool high) {
  const uint8x16_t nibbles = high ? vshrq_n_u8(pairs, 4) : vandq_u8(pairs, vdupq_n_u8(15));
  return vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8));
}

inline Lanes16 Widen16(int8x16_t integers, const Lanes16& scales) {
  const int16x8_t low = vmovl_s8(vget_low_s8(integers)), high = vmovl_high_s8(integers);
  return {{vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), scales.v[0]),
           vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(low)), scales.v[1]),
           vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), scales.v[2]),
           vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(high)), scales.v[3])}};
}

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
    if constexpr (T == KvType::kQ8_0) {
      const int8x16_t codes = vreinterpretq_s8_u8(LoadBytes(k + J * kKeyGroup));
      AddKeys<J, R, B>(q, b, Widen16(codes, scales[b]), acc);
    } else if constexpr (T == KvType::kQ4_0) {
      AddKeys<J, R, B>(q, b, Widen16(Nibbles(LoadBytes(k + J / 2 * kKeyGroup), J % 2 == 1), scales[b]), acc);
    } else {
      AddKeys<J, R, B>(q, b, Load16<T>(k + J * kCodeBytes16<T>), acc);
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
inline void ScoreTile(const ScoresArgs& a, int row, int block) {
  const size_t block_bytes = static_cast<size_t>(a.head_dim) * kRowBytes16<T>;
  const std::byte* keys = a.keys + static_cast<size_t>(block) * block_bytes;
  const float* q = a.q + int64_t{row} * a.head_dim;
  ScoreSums<R, B> acc;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) acc[r][b] = Zeros16();
  }
  Lanes16 scales[B] = {};
  if constexpr (kHasScales<T>) {
    const std::byte* at = keys + static_cast<size_t>(a.head_dim) * kCodeBytes16<T>;
    for (int d = 0; d < a.head_dim; d += kQuantBlock, at += 2 * kKeyGroup) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) scales[b] = Load16<KvType::kF16>(at + static_cast<size_t>(b) * block_bytes);
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
  for (; block + B <= a.block_end; block += B) ScoreTile<T, R, B>(a, row, block);
  for (; block < a.block_end; ++block) ScoreTile<T, R, 1>(a, row, block);
}

template <KvType T>
void ScoresOf(const ScoresArgs& a) {
  // Scales take registers of their own.
  constexpr int kOne = kHasScales<T> ? 2 : 4, kTwo = kHasScales<T> ? 1 : 2;
  int row = 0;
  for (; row + 4 <= a.n_rows; row += 4) ScoreRows<T, 4, 1>(a, row);
  switch (a.n_rows - row) {
    case 3:
      ScoreRows<T, 3, 1>(a, row);
      break;
    case 2:
      ScoreRows<T, 2, kTwo>(a, row);
      break;
    case 1:
      ScoreRows<T, 1, kOne>(a, row);
      break;
    default:
      break;
  }
}

// 16 of one key's values, from dimension d on.
template <KvType T>
[[gnu::always_inline]] inline Lanes16 LoadValues(const std::byte* row, int head_dim, int d) {
  const auto at = static_cast<size_t>(d);
  if constexpr (!kHasScales<T>) return Load16<T>(row + at / 16 * kCodeBytes16<T>);
  const std::byte* scales = row + static_cast<size_t>(head_dim) / 16 * kCodeBytes16<T>;
  const Lanes16 scale = Broadcast16(scales + at / kQuantBlock * 2);
  if constexpr (T == KvType::kQ8_0) return Widen16(vreinterpretq_s8_u8(LoadBytes(row + at)), scale);
  return Widen16(Nibbles(LoadBytes(row + at / kQuantBlock * 16), d % kQuantBlock != 0), scale);
}

// R rows times 16 S head dimensions over keys [begin, end); value_row(key) is where a key's values lie.
template <KvType T, int R, int S, typename ValueRow>
inline void ValueTile(const ValueRow& value_row, const float* p, int64_t p_stride, float* o, int64_t o_stride,
                      int begin, int end, int head_dim, int d) {
  Lanes16 acc[R][S];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < S; ++s) acc[r][s] = LoadFloat16Lanes(o + r * o_stride + d + 16 * s);
  }
  for (int key = begin; key < end; ++key) {
    const std::byte* row = value_row(key);
#pragma GCC unroll 4
    for (int s = 0; s < S; ++s) {
      const Lanes16 value = LoadValues<T>(row, head_dim, d + 16 * s);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const float weight = p[r * p_stride + key];
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) acc[r][s].v[v] = vfmaq_n_f32(acc[r][s].v[v], value.v[v], weight);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < S; ++s) Store16(o + r * o_stride + d + 16 * s, acc[r][s]);
  }
}

// All head dimensions, 16 S at a time while they last. head_dim is a multiple of 16.
template <KvType T, int R, typename ValueRow>
inline void ValueRowsOf(const ValueRow& value_row, const float* p, int64_t p_stride, float* o,
                        int64_t o_stride, int begin, int end, int head_dim) {
  constexpr int kSixteens = R == 1 ? 4 : R <= 3 ? 2 : 1;
  int d = 0;
  for (; d + 16 * kSixteens <= head_dim; d += 16 * kSixteens) {
    ValueTile<T, R, kSixteens>(value_row, p, p_stride, o, o_stride, begin, end, head_dim, d);
  }
  for (; d < head_dim; d += 16)
    ValueTile<T, R, 1>(value_row, p, p_stride, o, o_stride, begin, end, head_dim, d);
}

template <KvType T, int R>
void ChunkValueTile(const ValuesArgs& a, int row) {
  const auto value_row = [&](int key) {
    return a.values + static_cast<size_t>(key) * (static_cast<size_t>(a.head_dim) / 16 * kRowBytes16<T>);
  };
  int shared = a.n_keys[row];
  for (int r = 1; r < R; ++r) shared = a.n_keys[row + r] < shared ? a.n_keys[row + r] : shared;
  const float* p = a.p + row * a.p_stride;
  float* o = a.o + row * a.o_stride;
  if (shared > 0) ValueRowsOf<T, R>(value_row, p, a.p_stride, o, a.o_stride, 0, shared, a.head_dim);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    if (a.n_keys[row + r] > shared) {
      ValueRowsOf<T, 1>(value_row, p + r * a.p_stride, a.p_stride, o + r * a.o_stride, a.o_stride, shared,
                        a.n_keys[row + r], a.head_dim);
    }
  }
}

template <KvType T>
void ValuesOf(const ValuesArgs& a) {
  int row = 0;
  for (; row + 6 <= a.n_rows; row += 6) ChunkValueTile<T, 6>(a, row);
  switch (a.n_rows - row) {
    case 5:
      ChunkValueTile<T, 5>(a, row);
      break;
    case 4:
      ChunkValueTile<T, 4>(a, row);
      break;
    case 3:
      ChunkValueTile<T, 3>(a, row);
      break;
    case 2:
      ChunkValueTile<T, 2>(a, row);
      break;
    case 1:
      ChunkValueTile<T, 1>(a, row);
      break;
    default:
      break;
  }
}

template <KvType T, int R>
void GatheredTile(const GatheredValuesArgs& a, int row) {
  const auto value_row = [&](int key) { return a.values[key]; };
  ValueRowsOf<T, R>(value_row, a.p + row * a.p_stride, a.p_stride, a.o + row * a.o_stride, a.o_stride, 0,
                    a.n_keys, a.head_dim);
}

template <KvType T>
void GatheredOf(const GatheredValuesArgs& a) {
  int row = 0;
  for (; row + 3 <= a.n_rows; row += 3) GatheredTile<T, 3>(a, row);
  for (; row < a.n_rows; ++row) GatheredTile<T, 1>(a, row);
}

// Softmax numerators of 16 scores; they are added to the stripes.
inline Lanes16 Numerators(const float* scores, float32x4_t top, Lanes16& stripes) {
  Lanes16 p = LoadFloat16Lanes(scores);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    p.v[v] = ExpVector(vsubq_f32(p.v[v], top));
    stripes.v[v] = vaddq_f32(stripes.v[v], p.v[v]);
  }
  return p;
}

// Their arithmetics flush denormals after rounding, where FPCR.FZ does it before.
bool IsBf16(KvType type) { return type == KvType::kBF16 || type == KvType::kBF16Amx; }

}  // namespace

void Scores(const ScoresArgs& a) {
  if (a.type == KvType::kI8) return ScoresI8(a);
  if (IsBf16(a.type)) return reference::Scores(a);
  WithKvType(a.type, [&](auto type) { ScoresOf<decltype(type)::kValue>(a); });
}

void Values(const ValuesArgs& a) {
  if (a.type == KvType::kI8) return ValuesI8(a);
  if (IsBf16(a.type)) return reference::Values(a);
  WithKvType(a.type, [&](auto type) { ValuesOf<decltype(type)::kValue>(a); });
}

void GatheredValues(const GatheredValuesArgs& a) {
  if (a.type == KvType::kI8) return GatheredValuesI8(a);
  if (IsBf16(a.type)) return reference::GatheredValues(a);
  WithKvType(a.type, [&](auto type) { GatheredOf<decltype(type)::kValue>(a); });
}

void SoftmaxChunk(float* scores, int n, float* state) {
  // The rest of the last block of 16 is padded on a copy: exp gives the padding 0, which no stripe feels.
  const float lowest = -__builtin_inff();
  const int whole = n / 16 * 16;
  float rest[16];
  for (float& r : rest) r = lowest;
  std::memcpy(rest, scores + whole, static_cast<size_t>(n - whole) * sizeof(float));
  Lanes16 m = LoadFloat16Lanes(rest);
  for (int i = 0; i < whole; i += 16) m = Max16(m, LoadFloat16Lanes(scores + i));
  const float largest = MaxOf(m) + 0.0F;  // never -0
  const float32x4_t top = vdupq_n_f32(largest);
  Lanes16 stripes = Zeros16();
  for (int i = 0; i < whole; i += 16) Store16(scores + i, Numerators(scores + i, top, stripes));
  if (whole < n) {
    Store16(rest, Numerators(rest, top, stripes));
    std::memcpy(scores + whole, rest, static_cast<size_t>(n - whole) * sizeof(float));
  }
  state[0] = largest;
  state[1] = StripeSum(stripes);
}

void MergeState(float* state, const float* chunk, int head_dim) {
  const float m = state[0] < chunk[0] ? chunk[0] : state[0];
  const float differences[4] = {state[0] - m, chunk[0] - m, 0.0F, 0.0F};
  const float32x4_t factors = ExpVector(vld1q_f32(differences));
  const float a = vgetq_lane_f32(factors, 0), b = vgetq_lane_f32(factors, 1);
  state[0] = m;
  state[1] = __builtin_fmaf(state[1], a, chunk[1] * b);
  for (int d = kStateHeader; d < kStateHeader + head_dim; d += 4) {
    vst1q_f32(state + d, vfmaq_n_f32(vmulq_n_f32(vld1q_f32(chunk + d), b), vld1q_f32(state + d), a));
  }
}

void FinishState(const float* state, int head_dim, float* out) {
  const float inverse = 1.0F / state[1];
  for (int d = 0; d < head_dim; d += 4) {
    vst1q_f32(out + d, vmulq_n_f32(vld1q_f32(state + kStateHeader + d), inverse));
  }
}

}  // namespace longspec::kernels::neon
