// SPDX-License-Identifier: Apache-2.0
//
// Matrix products, AArch64 with sdot. A group's 16 output rows are four vectors of 4 lanes, which is how the
// packed bytes lie: sdot multiplies four bytes of each output row with four bytes of x, picked from a vector
// of 16 by its lane. A q8 tile is R rows of x against V vectors: four rows take half a group at a time, so
// that integer sums, float sums and x have registers to themselves.
#include <arm_neon.h>

#include <cstring>

#include "kernels/cpu/float_rows.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_math.h"
#include "kernels/cpu/neon_products.h"
#include "kernels/cpu/weight_traits.h"
#include "kernels/reference/reference.h"

namespace longspec::kernels::neon {
namespace {

// Scales and minima of one group, 8 lanes at a time from `lane` on.
template <WeightFormat F>
class GroupScales {
 public:
  GroupScales(const std::byte* group, int n_block)
      : scales_(group + static_cast<size_t>(n_block) * kBlockBytes<F>),
        minima_(scales_ + static_cast<size_t>(n_block) * kRowGroup * 2) {}

  Lanes8 Scale(int b, int lane) const {
    if constexpr (kScaleBytes<F> == 1) return LoadExponents8(scales_ + At(b, lane) / 2);
    return LoadHalf8(scales_ + At(b, lane));
  }
  Lanes8 Minimum(int b, int lane) const { return LoadHalf8(minima_ + At(b, lane)); }

 private:
  static size_t At(int b, int lane) { return static_cast<size_t>(b * kRowGroup + lane) * 2; }

  const std::byte *scales_, *minima_;
};

// sum = d[I] * the dots of half I, half 1's added to half 0's.
// Half after half, so that the integer sums of both need not be in registers at once.
template <WeightFormat F, int I, int R, int V>
[[gnu::always_inline]] inline void AddHalf(const std::byte* w, const Q8Block* const* x, int b,
                                           float32x4_t (&sum)[R][V]) {
  // Keeps the compiler from holding the first half's loads of U4 weights for the second.
  asm volatile("" : "+r"(w));
  int8x16_t q[R];
  int32x4_t dot[R][V];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const Q8Block& block = x[r][b];
    q[r] = vld1q_s8(block.q + 16 * I);
    constexpr int kLess = kOffset<F> == 128 ? 0 : kOffset<F> / 8;  // what was added to weights
    const int32x4_t start = vdupq_n_s32(kLess * block.less_8[I]);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) dot[r][v] = start;
  }
  AddFours<F, Quants::kPacked, I, 0, R, V>(w, q, dot);
  AddFours<F, Quants::kPacked, I, 1, R, V>(w, q, dot);
  AddFours<F, Quants::kPacked, I, 2, R, V>(w, q, dot);
  AddFours<F, Quants::kPacked, I, 3, R, V>(w, q, dot);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const float d = x[r][b].d[I];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const float32x4_t value = vcvtq_f32_s32(dot[r][v]);
      sum[r][v] = I == 0 ? vmulq_n_f32(value, d) : vfmaq_n_f32(sum[r][v], value, d);
    }
  }
}

// acc += scale * sum.
template <WeightFormat F, int R, int V>
[[gnu::always_inline]] inline void AddScaled(const GroupScales<F>& scales, int b, int lane,
                                             const float32x4_t (&sum)[R][V], float32x4_t (&acc)[R][V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; v += 2) {
    const Lanes8 d = scales.Scale(b, lane + 4 * v);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      acc[r][v] = vfmaq_f32(acc[r][v], d.v[0], sum[r][v]);
      acc[r][v + 1] = vfmaq_f32(acc[r][v + 1], d.v[1], sum[r][v + 1]);
    }
  }
}

// R rows of x against lanes [lane, lane + 4 V) of a group.
template <WeightFormat F, int R, int V>
void Q8Tile(const MatmulQ8Args& a, int group, int lane, int row) {
  const auto n_block = static_cast<int>(a.w->n_in / kQuantBlock);
  const std::byte* quants = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  const GroupScales<F> scales(quants, n_block);
  const Q8Block* x[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) x[r] = a.x + int64_t{row + r} * n_block;

  float32x4_t acc[R][V];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[r][v] = vdupq_n_f32(0.0F);
  }
  const std::byte* w = quants + 4 * lane;
  for (int b = 0; b < n_block; ++b, w += kBlockBytes<F>) {
    float32x4_t sum[R][V];
    AddHalf<F, 0, R, V>(w, x, b, sum);
    AddHalf<F, 1, R, V>(w, x, b, sum);
    AddScaled<F, R, V>(scales, b, lane, sum, acc);
    if constexpr (kHasMin<F>) {
#pragma GCC unroll 4
      for (int v = 0; v < V; v += 2) {
        const Lanes8 m = scales.Minimum(b, lane + 4 * v);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const float s = x[r][b].s;
          acc[r][v] = vfmaq_n_f32(acc[r][v], m.v[0], s);
          acc[r][v + 1] = vfmaq_n_f32(acc[r][v + 1], m.v[1], s);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    StoreLanes<V>(a.y + (row + r) * a.y_stride, a.w->n_out, int64_t{group} * kRowGroup + lane, acc[r], a.add);
  }
}

// One or two rows take a group at once; more take its halves, whose weights the second tile finds in the
// cache.
template <WeightFormat F, int R>
void Q8Rows(const MatmulQ8Args& a, int group, int row) {
  constexpr int kVectors = R <= 2 ? 4 : 2;
  for (int lane = 0; lane < kRowGroup; lane += 4 * kVectors) Q8Tile<F, R, kVectors>(a, group, lane, row);
}

template <WeightFormat F>
void Q8Groups(const MatmulQ8Args& a) {
  for (int group = a.group_begin; group < a.group_end; ++group) {
    ForEachWholeTile<4>(a.n_rows,
                        [&](auto rows, int row) { Q8Rows<F, decltype(rows)::kValue>(a, group, row); });
  }
}

// Value k of R rows, which is lane J of x, times the weights of G groups.
template <WeightFormat F, int J, int R, int G>
[[gnu::always_inline]] inline void AddColumn(const std::byte* weights, size_t group_bytes, int64_t k,
                                             const float32x4_t (&x)[R], Lanes16 (&acc)[R][G]) {
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    const Lanes16 w = LoadWeights<Lanes, F>(weights + static_cast<size_t>(g) * group_bytes, k);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) acc[r][g].v[v] = vfmaq_laneq_f32(acc[r][g].v[v], w.v[v], x[r], J);
    }
  }
}

// R rows against G groups: not FloatTile of float_rows.h, as products are with one lane of four values.
template <WeightFormat F, int R, int G>
void FloatTileByLane(const MatmulFloatArgs& a, int group, int row) {
  Lanes16 acc[R][G];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) acc[r][g] = Lanes::Zero();
  }
  const size_t group_bytes = a.w->group_bytes;
  const std::byte* weights = a.w->data + static_cast<size_t>(group) * group_bytes;
  const float* rows = a.x + row * a.x_stride;
  const int64_t n_in = a.w->n_in;
  float32x4_t x[R];
  int64_t k = 0;
  for (; k + 4 <= n_in; k += 4) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) x[r] = vld1q_f32(rows + r * a.x_stride + k);
    AddColumn<F, 0, R, G>(weights, group_bytes, k, x, acc);
    AddColumn<F, 1, R, G>(weights, group_bytes, k + 1, x, acc);
    AddColumn<F, 2, R, G>(weights, group_bytes, k + 2, x, acc);
    AddColumn<F, 3, R, G>(weights, group_bytes, k + 3, x, acc);
  }
  for (; k < n_in; ++k) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) x[r] = vdupq_n_f32(rows[r * a.x_stride + k]);
    AddColumn<F, 0, R, G>(weights, group_bytes, k, x, acc);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      StoreLanes<4>(a.y + (row + r) * a.y_stride, a.w->n_out, int64_t{group + g} * kRowGroup, acc[r][g].v,
                    a.add);
    }
  }
}

template <WeightFormat F>
void FloatGroups(const MatmulFloatArgs& a) {
  ForEachFloatTile(a, [&](auto rows, auto groups, int group, int row) {
    FloatTileByLane<F, decltype(rows)::kValue, decltype(groups)::kValue>(a, group, row);
  });
}

}  // namespace

void MatmulQ8(const MatmulQ8Args& a) {
  WithQ8Format(a.w->format, [&](auto format) { Q8Groups<decltype(format)::kValue>(a); });
}

void MatmulFloat(const MatmulFloatArgs& a) {
  WithFloatFormat(a.w->format, [&](auto format) { FloatGroups<decltype(format)::kValue>(a); });
}

// Their arithmetics flush denormals after rounding, where FPCR.FZ does it before: the reference's loops do
// it.
void RoundBf16(const float* x, int n, uint16_t* out) { reference::RoundBf16(x, n, out); }
void MatmulBf16(const MatmulBf16Args& a) { reference::MatmulBf16(a); }

void QuantizeQ8(const float* x, int n, Q8Block* out) {
  for (int b = 0; b < n / kQuantBlock; ++b) {
    Q8Block& block = out[b];
    block = {};
    int32_t sum[2];
    uint32x4_t finite = vdupq_n_u32(~0U);
    for (int h = 0; h < 2; ++h, x += kQuantBlock / 2) {
      const Lanes16 values = Lanes::Load(x);
      Lanes16 magnitudes;
      int32x4_t q[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        magnitudes.v[v] = vabsq_f32(values.v[v]);
        finite = vandq_u32(finite, vcltq_f32(magnitudes.v[v], vdupq_n_f32(__builtin_inff())));
      }
      const float largest = Lanes::MaxOf(magnitudes);
      const float inverse = largest < 0x1.0p-120F ? 0.0F : 127.0F / largest;
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v)
        q[v] = vcvtnq_s32_f32(vmulq_n_f32(values.v[v], inverse));  // to nearest even
      const int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
      const int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
      vst1q_s8(block.q + 16 * h, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
      block.d[h] = largest / 127.0F;
      sum[h] = vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
    }
    if (vminvq_u32(finite) == 0) {  // the sums of such q mean nothing
      block = kNoNumbersQ8;
      continue;
    }
    SetSums(sum[0], sum[1], block);
  }
}

}  // namespace longspec::kernels::neon
