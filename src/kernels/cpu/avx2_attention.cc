// SPDX-License-Identifier: Apache-2.0
//
// Attention inside one chunk of 256 keys, AVX2. Rows are all the query rows that look at one KV head (tree
// nodes times the heads of a group), so a tile of rows shares every key and value it loads.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/bf16_lanes.h"
#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/kv_quantize_avx2.h"
#include "kernels/cpu/kv_traits.h"
#include "kernels/cpu/value_rows.h"

namespace longspec::kernels::avx2 {
namespace {

// 16 values of one position.
template <KvType T>
inline constexpr size_t kRowBytes16 = kCodeBytes16<T> + kScaleBytes32<T> / 2;

template <KvType T>
inline __m256 Load8(const std::byte* p) {
  if constexpr (T == KvType::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  } else {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    if constexpr (T == KvType::kF16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
}

inline __m256 ScalesOf8(const std::byte* p) { return Load8<KvType::kF16>(p); }

inline __m256 Broadcast(const std::byte* scale) {
  uint16_t h;
  std::memcpy(&h, scale, sizeof(h));
  return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

// The low or high nibbles of the first 8 bytes, as integers -8 to 7.
inline __m128i Nibbles(__m128i pairs, bool high) {
  const __m128i shifted = high ? _mm_srli_epi16(pairs, 4) : pairs;
  return _mm_sub_epi8(_mm_and_si128(shifted, _mm_set1_epi8(15)), _mm_set1_epi8(8));
}

inline __m256 Widen8(__m128i integers, __m256 scales) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(integers)), scales);
}

inline __m128i Load8Bytes(const std::byte* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }

// 8 keys of one dimension; `code` is where their codes lie.
template <KvType T>
inline __m256 LoadKeys(const std::byte* code, bool odd, __m256 scales) {
  if constexpr (T == KvType::kQ8_0) return Widen8(Load8Bytes(code), scales);
  return Widen8(Nibbles(Load8Bytes(code), odd), scales);
}

template <int R, int B>
using ScoreSums = __m256[R][B][2];

// Where R numbers of one kind, used by several pairs of vectors, would not fit into the 16 registers beside
// `n_sums` sums and a pair, makes them be read anew for each pair. A sum that went through memory would cost
// three times an addition.
template <int R, int n_sums>
[[gnu::always_inline]] inline const float* ReadAnew(const float* numbers) {
  if constexpr (n_sums + 2 + R > 16) asm volatile("" : "+r"(numbers));  // two of them are not the same
  return numbers;
}

// One dimension of 16 keys for all rows.
template <int R, int B>
[[gnu::always_inline]] inline void AddKeys(const float* q, int head_dim, int b, __m256 k0, __m256 k1,
                                           ScoreSums<R, B>& acc) {
  q = ReadAnew<R, 2 * R * B>(q);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m256 value = _mm256_set1_ps(q[r * head_dim]);
    acc[r][b][0] = _mm256_fmadd_ps(value, k0, acc[r][b][0]);
    acc[r][b][1] = _mm256_fmadd_ps(value, k1, acc[r][b][1]);
  }
}

template <KvType T, int R, int B>
[[gnu::always_inline]] inline void SumFloats(const std::byte* keys, size_t block_bytes, const float* q,
                                             int head_dim, ScoreSums<R, B>& acc, Fetch& fetch) {
  for (int begin = 0; begin < head_dim; begin += kStride<R>) {
    fetch.Step(R * B * kStride<R>);
    for (int i = begin; i < begin + kStride<R>; ++i) {
      const int d = Ordered<T>(i);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        const std::byte* k =
            keys + static_cast<size_t>(b) * block_bytes + static_cast<size_t>(d) * kCodeBytes16<T>;
        AddKeys<R, B>(q + d, head_dim, b, Load8<T>(k), Load8<T>(k + kCodeBytes16<T> / 2), acc);
      }
    }
  }
}

template <KvType T, int R, int B>
[[gnu::always_inline]] inline void SumQuantized(const std::byte* keys, size_t block_bytes, const float* q,
                                                int head_dim, ScoreSums<R, B>& acc, Fetch& fetch) {
  constexpr int kStep = T == KvType::kQ4_0 ? 2 : 1;  // dimensions in 16 bytes
  const std::byte* scales = keys + static_cast<size_t>(head_dim) * kCodeBytes16<T>;
  for (int block = 0; block < head_dim; block += kQuantBlock, scales += 2 * kKeyGroup) {
    __m256 scale[B][2];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      const std::byte* at = scales + static_cast<size_t>(b) * block_bytes;
      scale[b][0] = ScalesOf8(at);
      scale[b][1] = ScalesOf8(at + 16);
    }
    fetch.Step(R * B * kQuantBlock);
    for (int d = block; d < block + kQuantBlock; d += kStep, keys += kKeyGroup) {
#pragma GCC unroll 2
      for (int step = 0; step < kStep; ++step) {
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) {
          const std::byte* k = keys + static_cast<size_t>(b) * block_bytes;
          const __m256 k0 = LoadKeys<T>(k, step == 1, scale[b][0]),
                       k1 = LoadKeys<T>(k + 8, step == 1, scale[b][1]);
          AddKeys<R, B>(q + d + step, head_dim, b, k0, k1, acc);
        }
      }
    }
  }
}

// R query rows against B neighbouring blocks of 16 keys.
template <KvType T, int R, int B>
inline void ScoreTile(const ScoresArgs& a, int row, int block, Fetch& fetch) {
  const size_t block_bytes = static_cast<size_t>(a.head_dim) * kRowBytes16<T>;
  const std::byte* keys = a.keys + static_cast<size_t>(block) * block_bytes;
  const float* q = a.q + int64_t{row} * a.head_dim;
  ScoreSums<R, B> acc;
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) acc[r][b][0] = acc[r][b][1] = _mm256_setzero_ps();
  }
  if constexpr (kHasScales<T>) {
    SumQuantized<T, R, B>(keys, block_bytes, q, a.head_dim, acc, fetch);
  } else {
    SumFloats<T, R, B>(keys, block_bytes, q, a.head_dim, acc, fetch);
  }
  const __m256 scale = _mm256_set1_ps(a.scale);
  for (int r = 0; r < R; ++r) {
    float* out = a.out + (row + r) * a.out_stride + int64_t{block} * kKeyGroup;
    for (int b = 0; b < B; ++b) {
      _mm256_storeu_ps(out + 16 * b, _mm256_mul_ps(acc[r][b][0], scale));
      _mm256_storeu_ps(out + 16 * b + 8, _mm256_mul_ps(acc[r][b][1], scale));
    }
  }
}

template <KvType T, int R, int B>
void ScoreRows(const ScoresArgs& a, int row, Fetch& fetch) {
  int block = a.block_begin;
  for (; block + B <= a.block_end; block += B) ScoreTile<T, R, B>(a, row, block, fetch);
  for (; block < a.block_end; ++block) ScoreTile<T, R, 1>(a, row, block, fetch);
}

template <KvType T>
[[gnu::noinline]] void ScoresOf(const ScoresArgs& a) {
  Fetch fetch(a.next, int64_t{a.n_rows} * (a.block_end - a.block_begin) * a.head_dim);
  int row = 0;
  for (; row + 6 <= a.n_rows; row += 6) ScoreRows<T, 6, 1>(a, row, fetch);
  switch (a.n_rows - row) {
    case 5:
      ScoreRows<T, 5, 1>(a, row, fetch);
      break;
    case 4:
      ScoreRows<T, 4, 1>(a, row, fetch);
      break;
    case 3:
      ScoreRows<T, 3, 2>(a, row, fetch);
      break;
    case 2:
      ScoreRows<T, 2, 2>(a, row, fetch);
      break;
    case 1:
      ScoreRows<T, 1, 4>(a, row, fetch);
      break;
    default:
      break;
  }
}

// 16 of one key's values, from dimension d on, a multiple of 16.
template <KvType T>
[[gnu::always_inline]] inline void LoadValues(const std::byte* row, int head_dim, int d, __m256 (&value)[2]) {
  const auto at = static_cast<size_t>(d);
  if constexpr (!kHasScales<T>) {
    value[0] = Load8<T>(row + at / 16 * kCodeBytes16<T>);
    value[1] = Load8<T>(row + at / 16 * kCodeBytes16<T> + kCodeBytes16<T> / 2);
  } else {
    const std::byte* scales = row + static_cast<size_t>(head_dim) / 16 * kCodeBytes16<T>;
    const __m256 scale = Broadcast(scales + at / kQuantBlock * 2);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; ++i) {
      if constexpr (T == KvType::kQ8_0) {
        value[i] = Widen8(Load8Bytes(row + at + 8 * i), scale);
      } else {
        const std::byte* pairs = row + at / kQuantBlock * 16 + 8 * i;
        value[i] = Widen8(Nibbles(Load8Bytes(pairs), at % kQuantBlock != 0), scale);
      }
    }
  }
}

// One key for R rows: 8 V of its values, from dimension d on.
template <KvType T, int R, int V>
[[gnu::always_inline]] inline void AddValues(const std::byte* row, const float* p, int64_t p_stride,
                                             int head_dim, int d, __m256 (&acc)[R][V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; v += 2) {
    __m256 value[2];
    LoadValues<T>(row, head_dim, d + 8 * v, value);
    const float* weights = ReadAnew<R, R * V>(p);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 weight = _mm256_set1_ps(weights[r * p_stride]);
      acc[r][v] = _mm256_fmadd_ps(weight, value[0], acc[r][v]);
      acc[r][v + 1] = _mm256_fmadd_ps(weight, value[1], acc[r][v + 1]);
    }
  }
}

// R rows times 8 V (V even) head dimensions over keys [begin, end); value_row(key) is where a key's values
// lie.
template <KvType T, int R, int V, typename ValueRow>
inline void ValueTile(const ValueRow& value_row, const float* p, int64_t p_stride, float* o, int64_t o_stride,
                      int begin, int end, int head_dim, int d, Fetch& fetch) {
  __m256 acc[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = _mm256_loadu_ps(o + r * o_stride + d + 8 * v);
  }
  const int whole = kInPairs<T> ? end & ~1 : end;
  for (int i = begin; i < whole;) {
    const int stop = whole - i < kStride<R> ? whole : i + kStride<R>;
    fetch.Step(R * V * (stop - i));
    for (; i < stop; ++i) {
      const int key = Ordered<T>(i);
      AddValues<T, R, V>(value_row(key), p + key, p_stride, head_dim, d, acc);
    }
  }
  if (whole < end) {  // half a pair: the other half is a product of zeros
    for (auto& row : acc) {
      for (__m256& sum : row) sum = _mm256_add_ps(sum, _mm256_setzero_ps());
    }
    AddValues<T, R, V>(value_row(whole), p + whole, p_stride, head_dim, d, acc);
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) _mm256_storeu_ps(o + r * o_stride + d + 8 * v, acc[r][v]);
  }
}

// All head dimensions, V vectors at a time while they last. head_dim is a multiple of 16.
template <KvType T, int R, int V, typename ValueRow>
inline void ValueDims(const ValueRow& value_row, const float* p, int64_t p_stride, float* o, int64_t o_stride,
                      int begin, int end, int head_dim, Fetch& fetch) {
  int d = 0;
  for (; d + 8 * V <= head_dim; d += 8 * V) {
    ValueTile<T, R, V>(value_row, p, p_stride, o, o_stride, begin, end, head_dim, d, fetch);
  }
  for (; d < head_dim; d += 16)
    ValueTile<T, R, 2>(value_row, p, p_stride, o, o_stride, begin, end, head_dim, d, fetch);
}

template <KvType T, int R, typename ValueRow>
inline void ValueRowsOf(const ValueRow& value_row, const float* p, int64_t p_stride, float* o,
                        int64_t o_stride, int begin, int end, int head_dim, Fetch& fetch) {
  constexpr int kVectors = R == 1 ? 8 : R <= 3 ? 4 : 2;
  ValueDims<T, R, kVectors>(value_row, p, p_stride, o, o_stride, begin, end, head_dim, fetch);
}

template <KvType T, int R>
void ChunkValueTile(const ValuesArgs& a, int row, Fetch& fetch) {
  const size_t row_bytes = static_cast<size_t>(a.head_dim) / 16 * kRowBytes16<T>;
  const auto value_row = [values = a.values, row_bytes](int key) {
    return values + static_cast<size_t>(key) * row_bytes;
  };
  int shared = a.n_keys[row];
  for (int r = 1; r < R; ++r) shared = a.n_keys[row + r] < shared ? a.n_keys[row + r] : shared;
  if constexpr (kInPairs<T>) shared &= ~1;
  const float* p = a.p + row * a.p_stride;
  float* o = a.o + row * a.o_stride;
  if (shared > 0) ValueRowsOf<T, R>(value_row, p, a.p_stride, o, a.o_stride, 0, shared, a.head_dim, fetch);
  for (int r = 0; r < R; ++r) {
    if (a.n_keys[row + r] > shared) {
      ValueRowsOf<T, 1>(value_row, p + r * a.p_stride, a.p_stride, o + r * a.o_stride, a.o_stride, shared,
                        a.n_keys[row + r], a.head_dim, fetch);
    }
  }
}

template <KvType T>
[[gnu::noinline]] void ValuesOf(const ValuesArgs& a) {
  Fetch fetch(a.next, SeenKeys(a) * a.head_dim / 8);
  int row = 0;
  for (; row + 6 <= a.n_rows; row += 6) ChunkValueTile<T, 6>(a, row, fetch);
  switch (a.n_rows - row) {
    case 5:
      ChunkValueTile<T, 5>(a, row, fetch);
      break;
    case 4:
      ChunkValueTile<T, 4>(a, row, fetch);
      break;
    case 3:
      ChunkValueTile<T, 3>(a, row, fetch);
      break;
    case 2:
      ChunkValueTile<T, 2>(a, row, fetch);
      break;
    case 1:
      ChunkValueTile<T, 1>(a, row, fetch);
      break;
    default:
      break;
  }
}

template <KvType T, int R>
void GatheredTile(const GatheredValuesArgs& a, int row) {
  const auto value_row = [&](int key) { return a.values[key]; };
  Fetch nothing({}, 0);
  ValueRowsOf<T, R>(value_row, a.p + row * a.p_stride, a.p_stride, a.o + row * a.o_stride, a.o_stride, 0,
                    a.n_keys, a.head_dim, nothing);
}

template <KvType T>
[[gnu::noinline]] void GatheredOf(const GatheredValuesArgs& a) {
  int row = 0;
  for (; row + 3 <= a.n_rows; row += 3) GatheredTile<T, 3>(a, row);
  for (; row < a.n_rows; ++row) GatheredTile<T, 1>(a, row);
}

void RoundAll(const float* x, int n, float* out) {
  int i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, RoundToBf16(_mm256_loadu_ps(x + i)));
  if (i == n) return;
  float rest[8] = {};
  std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
  _mm256_storeu_ps(rest, RoundToBf16(_mm256_loadu_ps(rest)));
  std::memcpy(out + i, rest, static_cast<size_t>(n - i) * sizeof(float));
}

void ScaleAll(float* x, int n, float by) {
  for (int i = 0; i < n; i += 8)
    _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(by)));
}

inline void Store8(KvType type, std::byte* base, size_t index, __m256 v) {
  if (type == KvType::kF32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(base + index * 4), v);
    return;
  }
  __m128i h;
  if (type == KvType::kF16) {
    h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(rounded, quiet, nan);
    h = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(base + index * 2), h);
}

void StoreFloatKey(const StoreKvArgs& a) {
  const size_t bytes = a.k_type == KvType::kF32 ? 4 : 2;
  const size_t block =
      static_cast<size_t>(a.offset / kKeyGroup) * static_cast<size_t>(a.head_dim) * kKeyGroup;
  std::byte* column = a.keys + (block + static_cast<size_t>(a.offset % kKeyGroup)) * bytes;
  for (int d = 0; d < a.head_dim; d += 8) {
    std::byte converted[32];
    Store8(a.k_type, converted, 0, _mm256_loadu_ps(a.k + d));
    for (size_t i = 0; i < 8; ++i) {
      std::memcpy(column + (static_cast<size_t>(d) + i) * kKeyGroup * bytes, converted + i * bytes, bytes);
    }
  }
}

void StoreFloatValue(const StoreKvArgs& a) {
  const size_t row = static_cast<size_t>(a.offset) * static_cast<size_t>(a.head_dim);
  for (int d = 0; d < a.head_dim; d += 8) {
    Store8(a.v_type, a.values, row + static_cast<size_t>(d), _mm256_loadu_ps(a.v + d));
  }
}

// exp(scores - top) of 8 N scores in place, added to the stripes in their order.
template <int N>
inline void ExpAndAdd(float* scores, __m256 top, __m256 (&sums)[2]) {
  __m256 e[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) e[i] = _mm256_sub_ps(_mm256_loadu_ps(scores + 8 * i), top);
  ExpVectors(e);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    _mm256_storeu_ps(scores + 8 * i, e[i]);
    sums[i % 2] = _mm256_add_ps(sums[i % 2], e[i]);
  }
}

}  // namespace

void Scores(const ScoresArgs& a) {
  if (a.type == KvType::kI8) return ScoresI8(a);
  if (a.type == KvType::kBF16) return ScoresInPairs(a, RoundAll, ScoresOf<KvType::kBF16>, ScaleAll);
  if (a.type == KvType::kBF16Amx) return ScoresInTiles<Lanes>(a, RoundBf16);
  WithKvType(a.type, [&](auto type) { ScoresOf<decltype(type)::kValue>(a); });
}

void Values(const ValuesArgs& a) {
  if (a.type == KvType::kI8) return ValuesI8(a);
  if (a.type == KvType::kBF16) return ValuesInPairs(a, RoundAll, ValuesOf<KvType::kBF16>);
  if (a.type == KvType::kBF16Amx) {
    const ChunkRows value_row = {a.values, static_cast<size_t>(a.head_dim) * kBf16Bytes};
    return ValuesInTiles<Lanes>(a, value_row, RoundBf16);
  }
  WithKvType(a.type, [&](auto type) { ValuesOf<decltype(type)::kValue>(a); });
}

void GatheredValues(const GatheredValuesArgs& a) {
  if (a.type == KvType::kI8) return GatheredValuesI8(a);
  if (a.type == KvType::kBF16) return ValuesInPairs(a, RoundAll, GatheredOf<KvType::kBF16>);
  if (a.type == KvType::kBF16Amx) return ValuesInTiles<Lanes>(a, ScatteredRows{a.values}, RoundBf16);
  WithKvType(a.type, [&](auto type) { GatheredOf<decltype(type)::kValue>(a); });
}

void SoftmaxChunk(float* scores, int n, float* state) {
  // The rest of the last block of 16 is padded on a copy: exp gives the padding 0, which no stripe feels.
  const float lowest = -__builtin_inff();
  const int whole = n / 16 * 16;
  float rest[16];
  for (float& r : rest) r = lowest;
  std::memcpy(rest, scores + whole, static_cast<size_t>(n - whole) * sizeof(float));
  __m256 m = _mm256_max_ps(_mm256_loadu_ps(rest), _mm256_loadu_ps(rest + 8));
  for (int i = 0; i < whole; i += 8) m = _mm256_max_ps(m, _mm256_loadu_ps(scores + i));
  const float largest = MaxOf(m) + 0.0F;  // never -0
  const __m256 top = _mm256_set1_ps(largest);
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  int i = 0;
  for (; i + 64 <= whole; i += 64) ExpAndAdd<8>(scores + i, top, sums);
  for (; i < whole; i += 16) ExpAndAdd<2>(scores + i, top, sums);
  if (whole < n) {
    ExpAndAdd<2>(rest, top, sums);
    std::memcpy(scores + whole, rest, static_cast<size_t>(n - whole) * sizeof(float));
  }
  state[0] = largest;
  state[1] = StripeSum(sums[0], sums[1]);
}

void MergeState(float* state, const float* chunk, int head_dim) {
  const float m = state[0] < chunk[0] ? chunk[0] : state[0];
  const __m256 factors = ExpVector(_mm256_setr_ps(state[0] - m, chunk[0] - m, 0, 0, 0, 0, 0, 0));
  const float scalar_a = _mm256_cvtss_f32(factors);
  const float scalar_b = _mm_cvtss_f32(_mm_movehdup_ps(_mm256_castps256_ps128(factors)));
  state[0] = m;
  state[1] = __builtin_fmaf(state[1], scalar_a, chunk[1] * scalar_b);
  const __m256 a = _mm256_set1_ps(scalar_a), b = _mm256_set1_ps(scalar_b);
  for (int d = kStateHeader; d < kStateHeader + head_dim; d += 8) {
    _mm256_storeu_ps(state + d, _mm256_fmadd_ps(_mm256_loadu_ps(state + d), a,
                                                _mm256_mul_ps(_mm256_loadu_ps(chunk + d), b)));
  }
}

void FinishState(const float* state, int head_dim, float* out) {
  const __m256 inverse = _mm256_set1_ps(1.0F / state[1]);
  for (int d = 0; d < head_dim; d += 8) {
    _mm256_storeu_ps(out + d, _mm256_mul_ps(_mm256_loadu_ps(state + kStateHeader + d), inverse));
  }
}

void StoreKv(const StoreKvArgs& a) {
  WithStoredType(a.k_type, [&](auto type) {
    constexpr KvType kType = decltype(type)::kValue;
    if constexpr (kHasScales<kType>) {
      StoreQuantizedKey<kType>(a);
    } else {
      StoreFloatKey(a);
    }
  });
  WithStoredType(a.v_type, [&](auto type) {
    constexpr KvType kType = decltype(type)::kValue;
    if constexpr (kHasScales<kType>) {
      StoreQuantizedValue<kType>(a);
    } else {
      StoreFloatValue(a);
    }
  });
}

}  // namespace longspec::kernels::avx2
