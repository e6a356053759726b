// SPDX-License-Identifier: Apache-2.0
//
// Products with bf16 weights by AVX-512 BF16, in arithmetic "bf16" (ops.h). Two rows of a group's 16 weights
// are put together as pairs when they are loaded; a tile of rows shares that work.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_bf16.h"
#include "kernels/cpu/avx512_bf16_math.h"
#include "kernels/cpu/weights_ahead.h"

namespace longspec::kernels::avx512_bf16 {
namespace {

constexpr int kMostSums = 24;                              // of 32 registers
constexpr size_t kPairBytes = 2 * kRowGroup * kBf16Bytes;  // of the weights of a group

// R rows of x against the weights of the same two k in G groups.
template <int R, int G>
[[gnu::always_inline]] inline void AddPair(const uint16_t* x, int64_t x_stride, const __m512i (&w)[G],
                                           __m512 (&acc)[R][G]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    int32_t pair;
    std::memcpy(&pair, x + r * x_stride, sizeof(pair));
    const __m512i both = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) acc[r][g] = AddPairs(acc[r][g], both, w[g]);
  }
}

// R rows against G neighbouring groups. The first pass over a group fetches the next ones.
template <int R, int G>
[[gnu::always_inline]] inline void Tile(const MatmulBf16Args& a, int group, int row) {
  __m512 acc[R][G];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) acc[r][g] = _mm512_setzero_ps();
  }
  const std::byte* weights = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const std::byte* next = weights + G * a.w->group_bytes;
  const uint16_t* x = a.x + row * a.x_stride;
  __m512i w[G];
  int64_t k = 0;
  for (; k + 2 <= a.w->n_in; k += 2, weights += kPairBytes) {
    if (row == 0) {
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g, next += 64) FetchLine(next);
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) w[g] = InPairs(Load32(weights + static_cast<size_t>(g) * a.w->group_bytes));
    AddPair<R, G>(x + k, a.x_stride, w, acc);
  }
  if (k < a.w->n_in) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      const __m256i last = Load16Bits(weights + static_cast<size_t>(g) * a.w->group_bytes);
      w[g] = InPairs(_mm512_zextsi256_si512(last));
    }
    AddPair<R, G>(x + k, a.x_stride, w, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      StoreGroup(a.y + (row + r) * a.y_stride, a.w->n_out, group + g, acc[r][g], a.add);
    }
  }
}

// G groups from `group` on, for all rows, if 8 rows of them fit the registers (or so many rows as there are).
template <int G>
void Groups(const MatmulBf16Args& a, int group) {
  ForEachTile<kMostRows>(a.n_rows, [&](auto rows, int row) {
    constexpr int kRows = decltype(rows)::kValue;
    if constexpr (kRows * G <= kMostSums) Tile<kRows, G>(a, group, row);
  });
}

}  // namespace

void RoundBf16(const float* x, int n, uint16_t* out) { RoundRow(x, n, out); }

void MatmulBf16(const MatmulBf16Args& a) {
  if (a.w->format == WeightFormat::kBF16Amx) return avx512::MatmulBf16(a);
  // As equal as can be: 4 groups are 2 and 2, since the sums of one alone would wait for each other.
  const int most = a.n_rows * 4 <= kMostSums ? 4 : 3;
  for (int group = a.group_begin; group < a.group_end;) {
    const int left = a.group_end - group, parts = (left + most - 1) / most, n = (left + parts - 1) / parts;
    switch (n) {
      case 1:
        Groups<1>(a, group);
        break;
      case 2:
        Groups<2>(a, group);
        break;
      case 3:
        Groups<3>(a, group);
        break;
      default:
        Groups<4>(a, group);
        break;
    }
    group += n;
  }
}

}  // namespace longspec::kernels::avx512_bf16
