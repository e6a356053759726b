// SPDX-License-Identifier: Apache-2.0
//
// Attention inside one chunk of 256 keys, AVX-512. A block of 16 keys is one vector of scores; 16 head
// dimensions are one vector of values. Rows are all the query rows that look at one KV head (tree nodes times
// the heads of a group), so a tile of rows shares every key and value it loads.
#include <cstring>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
#include "kernels/cpu/bf16_lanes.h"
#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/kv_quantize_avx2.h"
#include "kernels/cpu/kv_traits.h"
#include "kernels/cpu/value_rows.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

// 16 values of one position.
template <KvType T>
inline constexpr size_t kRowBytes16 = kCodeBytes16<T> + kScaleBytes32<T> / 2;

template <KvType T>
inline __m512 Load16(const std::byte* p) {
  if constexpr (T == KvType::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(p));
  } else if constexpr (T == KvType::kF16) {
    return LoadHalf16(p);
  } else {
    return LoadBFloat16(p);
  }
}

inline __m512 Broadcast(const std::byte* scale) {
  uint16_t h;
  std::memcpy(&h, scale, sizeof(h));
  return _mm512_set1_ps(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
}

inline __m128i Load16Bytes(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// The low or high nibbles as integers -8 to 7.
inline __m128i Nibbles(__m128i pairs, bool high) {
  const __m128i shifted = high ? _mm_srli_epi16(pairs, 4) : pairs;
  return _mm_sub_epi8(_mm_and_si128(shifted, _mm_set1_epi8(15)), _mm_set1_epi8(8));
}

// 16 integers from 16 codes; `high` chooses the nibbles.
template <KvType T>
inline __m512 Widen16(const std::byte* codes, bool high, __m512 scales) {
  const __m128i bytes = Load16Bytes(codes);
  const __m128i integers = T == KvType::kQ8_0 ? bytes : Nibbles(bytes, high);
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers)), scales);
}

// With more rows in a tile 32 registers have room for fewer keys or dimensions beside them, and more is
// loaded for each product.
inline constexpr int kTileRows = 6;

template <int R, int B>
using ScoreSums = __m512[R][B];

// One dimension of B blocks of 16 keys for all rows.
template <int R, int B>
[[gnu::always_inline]] inline void AddKeys(const float* q, int head_dim, const __m512 (&k)[B],
                                           ScoreSums<R, B>& acc) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512 value = _mm512_set1_ps(q[r * head_dim]);
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) acc[r][b] = _mm512_fmadd_ps(value, k[b], acc[r][b]);
  }
}

template <KvType T, int R, int B>
[[gnu::always_inline]] inline void SumFloats(const std::byte* keys, size_t block_bytes, const float* q,
                                             int head_dim, ScoreSums<R, B>& acc, Fetch& fetch) {
  for (int begin = 0; begin < head_dim; begin += kStride<R>) {
    fetch.Step(R * B * kStride<R>);
    for (int i = begin; i < begin + kStride<R>; ++i) {
      const int d = Ordered<T>(i);
      const std::byte* at = keys + static_cast<size_t>(d) * kCodeBytes16<T>;
      __m512 k[B];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) k[b] = Load16<T>(at + static_cast<size_t>(b) * block_bytes);
      AddKeys<R, B>(q + d, head_dim, k, acc);
    }
  }
}

template <KvType T, int R, int B>
[[gnu::always_inline]] inline void SumQuantized(const std::byte* keys, size_t block_bytes, const float* q,
                                                int head_dim, ScoreSums<R, B>& acc, Fetch& fetch) {
  constexpr int kStep = T == KvType::kQ4_0 ? 2 : 1;  // dimensions in 16 bytes
  const std::byte* scales = keys + static_cast<size_t>(head_dim) * kCodeBytes16<T>;
  for (int block = 0; block < head_dim; block += kQuantBlock, scales += 2 * kKeyGroup) {
    __m512 scale[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) scale[b] = LoadHalf16(scales + static_cast<size_t>(b) * block_bytes);
    fetch.Step(R * B * kQuantBlock);
    for (int d = block; d < block + kQuantBlock; d += kStep, keys += kKeyGroup) {
#pragma GCC unroll 2
      for (int step = 0; step < kStep; ++step) {
        __m512 k[B];
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) {
          k[b] = Widen16<T>(keys + static_cast<size_t>(b) * block_bytes, step == 1, scale[b]);
        }
        AddKeys<R, B>(q + d + step, head_dim, k, acc);
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
    for (int b = 0; b < B; ++b) acc[r][b] = _mm512_setzero_ps();
  }
  if constexpr (kHasScales<T>) {
    SumQuantized<T, R, B>(keys, block_bytes, q, a.head_dim, acc, fetch);
  } else {
    SumFloats<T, R, B>(keys, block_bytes, q, a.head_dim, acc, fetch);
  }
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (int r = 0; r < R; ++r) {
    float* out = a.out + (row + r) * a.out_stride + int64_t{block} * kKeyGroup;
    for (int b = 0; b < B; ++b) _mm512_storeu_ps(out + 16 * b, _mm512_mul_ps(acc[r][b], scale));
  }
}

template <KvType T>
[[gnu::noinline]] void ScoresOf(const ScoresArgs& a) {
  Fetch fetch(a.next, int64_t{a.n_rows} * (a.block_end - a.block_begin) * a.head_dim);
  ForEachTile<kTileRows>(a.n_rows, [&](auto rows, int row) {
    constexpr int kRows = decltype(rows)::kValue;
    constexpr int kBlocks = 4;  // 24 accumulators of 32 registers at most
    int block = a.block_begin;
    for (; block + kBlocks <= a.block_end; block += kBlocks)
      ScoreTile<T, kRows, kBlocks>(a, row, block, fetch);
    for (; block < a.block_end; ++block) ScoreTile<T, kRows, 1>(a, row, block, fetch);
  });
}

// The weights and outputs of a tile's first row.
struct ValueRows {
  const float* p;
  int64_t p_stride;
  float* o;
  int64_t o_stride;
  int head_dim;
};

// V vectors of one key's values from dimension d on: a multiple of 32, or of 16 if V is 1.
template <KvType T, int V>
[[gnu::always_inline]] inline void LoadValues(const std::byte* row, int head_dim, int d, __m512 (&value)[V]) {
  if constexpr (!kHasScales<T>) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) value[v] = Load16<T>(row + static_cast<size_t>(d / 16 + v) * kCodeBytes16<T>);
  } else {
    const std::byte* scales = row + static_cast<size_t>(head_dim) / 16 * kCodeBytes16<T>;
    __m512 scale = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const auto at = static_cast<size_t>(d + 16 * v);
      if (v % 2 == 0) scale = Broadcast(scales + at / kQuantBlock * 2);
      const bool high = V > 1 ? v % 2 == 1 : d % kQuantBlock != 0;
      value[v] = Widen16<T>(row + (T == KvType::kQ4_0 ? at / kQuantBlock * 16 : at), high, scale);
    }
  }
}

// One key for R rows: V vectors of its values, from dimension d on.
template <KvType T, int R, int V>
[[gnu::always_inline]] inline void AddValues(const std::byte* row, const ValueRows& rows, int key, int d,
                                             __m512 (&acc)[R][V]) {
  __m512 value[V];
  LoadValues<T, V>(row, rows.head_dim, d, value);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512 weight = _mm512_set1_ps(rows.p[r * rows.p_stride + key]);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) acc[r][v] = _mm512_fmadd_ps(weight, value[v], acc[r][v]);
  }
}

// R rows times V vectors of head dimensions from d on, over keys [begin, end); value_row(key) is where a
// key's values lie.
template <KvType T, int R, int V, typename ValueRow>
inline void ValueTile(const ValueRow& value_row, const ValueRows& rows, int begin, int end, int d,
                      Fetch& fetch) {
  __m512 acc[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = _mm512_loadu_ps(rows.o + r * rows.o_stride + d + 16 * v);
  }
  const int whole = kInPairs<T> ? end & ~1 : end;
  for (int i = begin; i < whole;) {
    const int stop = whole - i < kStride<R> ? whole : i + kStride<R>;
    fetch.Step(R * V * (stop - i));
    for (; i < stop; ++i) AddValues<T, R, V>(value_row(Ordered<T>(i)), rows, Ordered<T>(i), d, acc);
  }
  if (whole < end) {  // half a pair: the other half is a product of zeros
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < V; ++v) acc[r][v] = _mm512_add_ps(acc[r][v], _mm512_setzero_ps());
    }
    AddValues<T, R, V>(value_row(whole), rows, whole, d, acc);
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(rows.o + r * rows.o_stride + d + 16 * v, acc[r][v]);
  }
}

// All head dimensions, V vectors at a time while they last. head_dim is a multiple of 16.
template <KvType T, int R, typename ValueRow>
inline void ValueDims(const ValueRow& value_row, const ValueRows& rows, int begin, int end, Fetch& fetch) {
  constexpr int kVectors = R == 1 ? 8 : 4;
  int d = 0;
  for (; d + 16 * kVectors <= rows.head_dim; d += 16 * kVectors) {
    ValueTile<T, R, kVectors>(value_row, rows, begin, end, d, fetch);
  }
  if constexpr (kVectors == 8) {
    for (; d + 64 <= rows.head_dim; d += 64) ValueTile<T, R, 4>(value_row, rows, begin, end, d, fetch);
  }
  for (; d < rows.head_dim; d += 16) ValueTile<T, R, 1>(value_row, rows, begin, end, d, fetch);
}

template <KvType T, int R>
void ChunkValueTile(const ValuesArgs& a, int row, Fetch& fetch) {
  const ChunkRows value_row = {a.values, static_cast<size_t>(a.head_dim) / 16 * kRowBytes16<T>};
  int shared = a.n_keys[row];
  for (int r = 1; r < R; ++r) shared = a.n_keys[row + r] < shared ? a.n_keys[row + r] : shared;
  if constexpr (kInPairs<T>) shared &= ~1;
  ValueRows rows = {a.p + row * a.p_stride, a.p_stride, a.o + row * a.o_stride, a.o_stride, a.head_dim};
  if (shared > 0) ValueDims<T, R>(value_row, rows, 0, shared, fetch);
  for (int r = 0; r < R; ++r, rows.p += a.p_stride, rows.o += a.o_stride) {
    if (a.n_keys[row + r] > shared) ValueDims<T, 1>(value_row, rows, shared, a.n_keys[row + r], fetch);
  }
}

template <KvType T>
[[gnu::noinline]] void ValuesOf(const ValuesArgs& a) {
  Fetch fetch(a.next, SeenKeys(a) * a.head_dim / 16);
  ForEachTile<kTileRows>(
      a.n_rows, [&](auto rows, int row) { ChunkValueTile<T, decltype(rows)::kValue>(a, row, fetch); });
}

template <KvType T>
[[gnu::noinline]] void GatheredOf(const GatheredValuesArgs& a) {
  ForEachTile<kTileRows>(a.n_rows, [&](auto count, int row) {
    const ScatteredRows value_row = {a.values};
    const ValueRows rows = {a.p + row * a.p_stride, a.p_stride, a.o + row * a.o_stride, a.o_stride,
                            a.head_dim};
    Fetch nothing({}, 0);
    ValueDims<T, decltype(count)::kValue>(value_row, rows, 0, a.n_keys, nothing);
  });
}

void RoundAll(const float* x, int n, float* out) {
  for (int i = 0; i < n; i += 16) {
    const __mmask16 lanes = FirstLanes(n - i);
    _mm512_mask_storeu_ps(out + i, lanes, RoundToBf16(_mm512_maskz_loadu_ps(lanes, x + i)));
  }
}

void ScaleAll(float* x, int n, float by) {
  const __m512 factor = _mm512_set1_ps(by);
  for (int i = 0; i < n; i += 16) _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), factor));
}

inline void Store16(KvType type, std::byte* out, __m512 v) {
  if (type == KvType::kF32) {
    _mm512_storeu_ps(reinterpret_cast<float*>(out), v);
    return;
  }
  __m256i h;
  if (type == KvType::kF16) {
    h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    // Not vcvtneps2bf16, which flushes denormals.
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    h = _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), h);
}

void StoreFloatKey(const StoreKvArgs& a) {
  const size_t bytes = a.k_type == KvType::kF32 ? 4 : 2;
  const auto head_dim = static_cast<size_t>(a.head_dim);
  const size_t block = static_cast<size_t>(a.offset / kKeyGroup) * head_dim * kKeyGroup;
  std::byte* column = a.keys + (block + static_cast<size_t>(a.offset % kKeyGroup)) * bytes;
  for (size_t d = 0; d < head_dim; d += 16) {
    std::byte converted[64];
    Store16(a.k_type, converted, _mm512_loadu_ps(a.k + d));
    for (size_t i = 0; i < 16; ++i) {
      std::memcpy(column + (d + i) * kKeyGroup * bytes, converted + i * bytes, bytes);
    }
  }
}

void StoreFloatValue(const StoreKvArgs& a) {
  const size_t bytes = a.v_type == KvType::kF32 ? 4 : 2;
  const auto head_dim = static_cast<size_t>(a.head_dim);
  std::byte* row = a.values + static_cast<size_t>(a.offset) * head_dim * bytes;
  for (size_t d = 0; d < head_dim; d += 16) Store16(a.v_type, row + d * bytes, _mm512_loadu_ps(a.v + d));
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
  // Lanes past the end hold -inf: exp gives them 0, which no stripe feels.
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  const int whole = n & ~15;
  const __mmask16 rest = FirstLanes(n - whole);
  const __m512 last = _mm512_mask_loadu_ps(lowest, rest, scores + whole);
  __m512 m = last;
  for (int i = 0; i < whole; i += 16) m = _mm512_max_ps(m, _mm512_loadu_ps(scores + i));
  const float largest = MaxOf(m) + 0.0F;  // never -0
  const __m512 top = _mm512_set1_ps(largest);
  __m512 stripes = _mm512_setzero_ps();
  for (int i = 0; i < whole; i += 16) {
    const __m512 e = ExpVector(_mm512_sub_ps(_mm512_loadu_ps(scores + i), top));
    _mm512_storeu_ps(scores + i, e);
    stripes = _mm512_add_ps(stripes, e);
  }
  if (whole < n) {
    const __m512 e = ExpVector(_mm512_sub_ps(last, top));
    _mm512_mask_storeu_ps(scores + whole, rest, e);
    stripes = _mm512_add_ps(stripes, e);
  }
  state[0] = largest;
  state[1] = StripeSum(stripes);
}

void MergeState(float* state, const float* chunk, int head_dim) {
  const float m = state[0] < chunk[0] ? chunk[0] : state[0];
  // Both at once: lane 0 is the state's factor, the others are the chunk's.
  const __m512 differences =
      _mm512_mask_mov_ps(_mm512_set1_ps(chunk[0] - m), 1, _mm512_set1_ps(state[0] - m));
  const __m512 factors = ExpVector(differences);
  const __m512 a = _mm512_set1_ps(FirstOf(factors));
  const __m512 b = _mm512_set1_ps(_mm_cvtss_f32(_mm_movehdup_ps(_mm512_castps512_ps128(factors))));
  state[0] = m;
  state[1] = __builtin_fmaf(state[1], FirstOf(a), chunk[1] * FirstOf(b));
  for (int d = kStateHeader; d < kStateHeader + head_dim; d += 16) {
    const __m512 added = _mm512_mul_ps(_mm512_loadu_ps(chunk + d), b);
    _mm512_storeu_ps(state + d, _mm512_fmadd_ps(_mm512_loadu_ps(state + d), a, added));
  }
}

void FinishState(const float* state, int head_dim, float* out) {
  const __m512 inverse = _mm512_set1_ps(1.0F / state[1]);
  for (int d = 0; d < head_dim; d += 16) {
    _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(state + kStateHeader + d), inverse));
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

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
