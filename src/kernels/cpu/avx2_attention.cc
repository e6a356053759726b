// SPDX-License-Identifier: Apache-2.0
//
// Attention inside one chunk of 256 keys, AVX2: what float_attention.h, attention_x86.h and kv_store.h make
// of 16 numbers in two registers.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/attention_x86.h"
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/avx2_math.h"
#include "kernels/cpu/kv_quantize_avx2.h"
#include "kernels/cpu/kv_store.h"

namespace longspec::kernels::avx2 {
namespace {

// The low or high nibbles of the first 8 bytes, as integers -8 to 7.
inline __m128i Nibbles(__m128i pairs, bool high) {
  const __m128i shifted = high ? _mm_srli_epi16(pairs, 4) : pairs;
  return _mm_sub_epi8(_mm_and_si128(shifted, _mm_set1_epi8(15)), _mm_set1_epi8(8));
}

template <KvType T>
inline __m256 Widen8(const std::byte* codes, bool high, __m256 scales) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m128i integers = T == KvType::kQ8_0 ? bytes : Nibbles(bytes, high);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(integers)), scales);
}

// 8 numbers as bits of 16 or 32.
inline void Store8(KvType type, std::byte* out, __m256 v) {
  if (type == KvType::kF32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(out), v);
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
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), h);
}

struct Set : Lanes {
  static constexpr bool kFetches = true, kEqualTiles = false;
  static constexpr int kTileRows = 6, kGatheredRows = 3;
  static constexpr int ScoreBlocks(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
  static constexpr int ValueVectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

  template <KvType T>
  static Vector Widen(const std::byte* codes, bool high, const Vector& scales) {
    return {Widen8<T>(codes, high, scales.low), Widen8<T>(codes + 8, high, scales.high)};
  }
  static Vector BroadcastHalf(const std::byte* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof(h));
    const __m256 all = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
    return {all, all};
  }
  static void StoreAs(KvType type, std::byte* out, const Vector& v) {
    Store8(type, out, v.low);
    Store8(type, out + (type == KvType::kF32 ? 32 : 16), v.high);
  }
};

}  // namespace

void Scores(const ScoresArgs& a) {
  if (a.type == KvType::kI8) return ScoresI8(a);
  ScoresBy<Set>(a, RoundBf16);
}

void Values(const ValuesArgs& a) {
  if (a.type == KvType::kI8) return ValuesI8(a);
  ValuesBy<Set>(a, RoundBf16);
}

void GatheredValues(const GatheredValuesArgs& a) {
  if (a.type == KvType::kI8) return GatheredValuesI8(a);
  GatheredValuesBy<Set>(a, RoundBf16);
}

void SoftmaxChunk(float* scores, int n, float* state) { SoftmaxChunkBy<Set>(scores, n, state); }
void MergeState(float* state, const float* chunk, int head_dim) { MergeStateBy<Set>(state, chunk, head_dim); }
void FinishState(const float* state, int head_dim, float* out) { FinishStateBy<Set>(state, head_dim, out); }
void StoreKv(const StoreKvArgs& a) { StoreKvBy<Set>(a); }

}  // namespace longspec::kernels::avx2
