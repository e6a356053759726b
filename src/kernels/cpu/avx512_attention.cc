// SPDX-License-Identifier: Apache-2.0
//
// Attention inside one chunk of 256 keys, AVX-512: what float_attention.h, attention_x86.h and kv_store.h
// make of 16 numbers in one register.
#include <cstring>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_math.h"
// After the intrinsics.
#include "kernels/cpu/attention_x86.h"
#include "kernels/cpu/kv_quantize_avx2.h"
#include "kernels/cpu/kv_store.h"

namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE {
namespace {

// The low or high nibbles as integers -8 to 7.
inline __m128i Nibbles(__m128i pairs, bool high) {
  const __m128i shifted = high ? _mm_srli_epi16(pairs, 4) : pairs;
  return _mm_sub_epi8(_mm_and_si128(shifted, _mm_set1_epi8(15)), _mm_set1_epi8(8));
}

struct Set : Lanes {
  static constexpr bool kFetches = true, kEqualTiles = true;
  // With more rows in a tile 32 registers have room for fewer keys or dimensions beside them, and more is
  // loaded for each product.
  static constexpr int kTileRows = 6, kGatheredRows = 6;
  static constexpr int ScoreBlocks(int) { return 4; }
  static constexpr int ValueVectors(int rows) { return rows == 1 ? 8 : 4; }

  template <KvType T>
  static Vector Widen(const std::byte* codes, bool high, Vector scales) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m128i integers = T == KvType::kQ8_0 ? bytes : Nibbles(bytes, high);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers)), scales);
  }
  static Vector BroadcastHalf(const std::byte* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof(h));
    return _mm512_set1_ps(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
  }
  static void StoreAs(KvType type, std::byte* out, Vector v) {
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

}  // namespace longspec::kernels::LONGSPEC_AVX512_NAMESPACE
