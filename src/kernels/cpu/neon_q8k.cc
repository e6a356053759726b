// SPDX-License-Identifier: Apache-2.0
//
// Products in arithmetic "q8k", AArch64 with sdot. Tiles are those of neon_matmul.cc, R rows of x against V
// vectors of 4 of a group's 16 output rows, of some super-blocks.
#include <arm_neon.h>

#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_products.h"
#include "kernels/cpu/super_spans.h"

namespace longspec::kernels::neon {
namespace {

// Factors of 8 lanes.
struct Factors8 {
  int32x4_t v[2];
};

// D, M and their factors, 8 lanes at a time from `lane` on.
template <WeightFormat F>
class SuperScales {
 public:
  SuperScales(const std::byte* group, int n_super) {
    const auto n = static_cast<size_t>(n_super), n_block = n * kBlocks;
    scales_ = group + n_block * kBlockBytes<F>;
    minima_ = scales_ + n * kRowGroup * 2;
    factors_ = minima_ + (kHasMin<F> ? n * kRowGroup * 2 : 0);
    min_factors_ = factors_ + n_block * kRowGroup;
  }

  Lanes8 Scale(int super, int lane) const { return LoadHalf8(scales_ + At(super, lane) * 2); }
  Lanes8 Minimum(int super, int lane) const { return LoadHalf8(minima_ + At(super, lane) * 2); }
  // Of a block, or of a half of one.
  Factors8 Factor(int index, int lane) const { return Wide(factors_ + At(index, lane)); }
  Factors8 MinimumFactor(int block, int lane) const { return Wide(min_factors_ + At(block, lane)); }

 private:
  static size_t At(int row, int lane) { return static_cast<size_t>(row * kRowGroup + lane); }
  static Factors8 Wide(const std::byte* p) {
    const uint8x8_t bytes = vld1_u8(reinterpret_cast<const uint8_t*>(p));
    const int16x8_t wide =
        kHasMin<F> ? vreinterpretq_s16_u16(vmovl_u8(bytes)) : vmovl_s8(vreinterpret_s8_u8(bytes));
    return {{vmovl_s16(vget_low_s16(wide)), vmovl_high_s16(wide)}};
  }

  const std::byte *scales_, *minima_, *factors_, *min_factors_;
};

// dot += the products of half I of a block.
template <WeightFormat F, Quants Q, int I, int R, int V>
[[gnu::always_inline]] inline void AddDots(const std::byte* w, const int8_t* const (&x)[R],
                                           int32x4_t (&dot)[R][V]) {
  // Keeps the compiler from holding the first half's loads of U4 weights for the second.
  asm volatile("" : "+r"(w));
  int8x16_t q[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) q[r] = vld1q_s8(x[r] + 16 * I);
  AddFours<F, Q, I, 0, R, V>(w, q, dot);
  AddFours<F, Q, I, 1, R, V>(w, q, dot);
  AddFours<F, Q, I, 2, R, V>(w, q, dot);
  AddFours<F, Q, I, 3, R, V>(w, q, dot);
}

template <int R, int V>
[[gnu::always_inline]] inline void SetZero(int32x4_t (&v)[R][V]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) v[r][i] = vdupq_n_s32(0);
  }
}

// dots += steps * factor * dot, and dot = 0.
template <WeightFormat F, int R, int V>
[[gnu::always_inline]] inline void AddTimesFactor(const SuperScales<F>& scales, int index, int lane,
                                                  const int32_t (&steps)[R], int32x4_t (&dot)[R][V],
                                                  int32x4_t (&dots)[R][V]) {
#pragma GCC unroll 4
  for (int v = 0; v < V; v += 2) {
    const Factors8 factor = scales.Factor(index, lane + 4 * v);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      dots[r][v] = vmlaq_s32(dots[r][v], dot[r][v], vmulq_n_s32(factor.v[0], steps[r]));
      dots[r][v + 1] = vmlaq_s32(dots[r][v + 1], dot[r][v + 1], vmulq_n_s32(factor.v[1], steps[r]));
    }
  }
  SetZero(dot);
}

// The integers of one super-block.
template <WeightFormat F, Quants Q, int R, int V>
[[gnu::always_inline]] inline void SuperDots(const SuperScales<F>& scales, int super, int lane,
                                             const std::byte* w, const Q8KBlock* const (&x)[R],
                                             int32x4_t (&dots)[R][V]) {
  int32x4_t dot[R][V];
  SetZero(dots);
  SetZero(dot);
  for (int i = 0; i < kBlocks; ++i, w += kQuantBytes<F, Q>) {
    const int8_t* q[R];
    int32_t steps[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      q[r] = x[r]->q + kQuantBlock * i;
      steps[r] = x[r]->steps[i];
    }
    const int b = super * kBlocks + i;
    AddDots<F, Q, 0, R, V>(w, q, dot);
    if constexpr (kHasHalves<F>) AddTimesFactor<F, R, V>(scales, 2 * b, lane, steps, dot, dots);
    AddDots<F, Q, 1, R, V>(w, q, dot);
    AddTimesFactor<F, R, V>(scales, kHasHalves<F> ? 2 * b + 1 : b, lane, steps, dot, dots);
  }
}

template <WeightFormat F, int R, int V>
[[gnu::always_inline]] inline void SuperMinima(const SuperScales<F>& scales, int super, int lane,
                                               const Q8KBlock* const (&x)[R], int32x4_t (&minima)[R][V]) {
  SetZero(minima);
  for (int i = 0; i < kBlocks; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v += 2) {
      const Factors8 factor = scales.MinimumFactor(super * kBlocks + i, lane + 4 * v);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const int32_t sum = x[r]->block_sums[i];
        minima[r][v] = vmlaq_n_s32(minima[r][v], factor.v[0], sum);
        minima[r][v + 1] = vmlaq_n_s32(minima[r][v + 1], factor.v[1], sum);
      }
    }
  }
}

// R rows of x against lanes [lane, lane + 4 V) of the span.
template <WeightFormat F, Quants Q, int R, int V>
void Q8KTile(const Span<SuperScales<F>>& span, int lane, int row) {
  const SuperScales<F> scales = *span.scales;
  const Q8KBlock* x[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) x[r] = span.Row(row + r);
  float* sums = span.acc + row * kRowGroup + lane;
  float32x4_t acc[R][V];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[r][v] = vld1q_f32(sums + r * kRowGroup + 4 * v);
  }
  const std::byte* w = span.quants + 4 * lane;
  for (int super = span.begin; super < span.end; ++super, w += kBlocks * kQuantBytes<F, Q>) {
    int32x4_t dots[R][V], minima[R][V];
    SuperDots<F, Q, R, V>(scales, super, lane, w, x, dots);
    if constexpr (kHasMin<F>) SuperMinima<F, R, V>(scales, super, lane, x, minima);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const float32x4_t d = scales.Scale(super, lane + 4 * (v & ~1)).v[v % 2];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        float32x4_t t = vmulq_f32(d, vcvtq_f32_s32(dots[r][v]));
        if constexpr (kHasMin<F>) {
          const float32x4_t m = scales.Minimum(super, lane + 4 * (v & ~1)).v[v % 2];
          t = vfmsq_f32(t, m, vcvtq_f32_s32(minima[r][v]));
        }
        acc[r][v] = vfmaq_n_f32(acc[r][v], t, x[r]->d);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) ++x[r];
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) vst1q_f32(sums + r * kRowGroup + 4 * v, acc[r][v]);
  }
}

// One or two rows take a group at once; more take its halves, whose weights the second tile finds in the
// cache.
template <WeightFormat F, Quants Q, int R>
void Q8KRows(const Span<SuperScales<F>>& span, int row) {
  constexpr int kVectors = R <= 2 ? 4 : 2;
  for (int lane = 0; lane < kRowGroup; lane += 4 * kVectors) Q8KTile<F, Q, R, kVectors>(span, lane, row);
}

// The lines of a block to bytes.
template <WeightFormat F, int... J>
[[gnu::always_inline]] inline void UnpackLines(Lines<J...>, const std::byte* packed, std::byte* bytes) {
#pragma GCC unroll 4
  for (int at = 0; at < 64; at += 16) {
    (vst1q_s8(reinterpret_cast<int8_t*>(bytes + 64 * J + at), SignedLine<F, J>(packed + at)), ...);
  }
}

struct Isa {
  template <WeightFormat F>
  using Scales = SuperScales<F>;
  static constexpr int kTileRows = 4;
  template <WeightFormat F>
  static constexpr int kManyRows = 2 * kTileRows + 1;

  template <WeightFormat F>
  static void Unpack(const std::byte* packed, int n_block, std::byte* bytes) {
    for (int b = 0; b < n_block; ++b, packed += kBlockBytes<F>, bytes += kByteBlock)
      UnpackLines<F>(Lines<0, 1, 2, 3, 4, 5, 6, 7>(), packed, bytes);
  }

  template <WeightFormat F, Quants Q>
  static void Tiles(const Span<SuperScales<F>>& span, int n_rows) {
    int row = 0;
    for (; row + 4 <= n_rows; row += 4) Q8KRows<F, Q, 4>(span, row);
    switch (n_rows - row) {
      case 3:
        Q8KRows<F, Q, 3>(span, row);
        break;
      case 2:
        Q8KRows<F, Q, 2>(span, row);
        break;
      case 1:
        Q8KRows<F, Q, 1>(span, row);
        break;
      default:
        break;
    }
  }

  static void Store(const MatmulQ8KArgs& a, int group, int row, int n_rows, const float* acc) {
    for (int r = 0; r < n_rows; ++r, acc += kRowGroup) {
      const float32x4_t lanes[4] = {vld1q_f32(acc), vld1q_f32(acc + 4), vld1q_f32(acc + 8),
                                    vld1q_f32(acc + 12)};
      StoreLanes<4>(a.y + (row + r) * a.y_stride, a.w->n_out, int64_t{group} * kRowGroup, lanes, a.add);
    }
  }
};

}  // namespace

void MatmulQ8K(const MatmulQ8KArgs& a) { MultiplyGroups<Isa>(a); }

void QuantizeQ8K(const float* x, int n, Q8KBlock* out) {
  for (int b = 0; b < n / kSuperBlock; ++b, x += kSuperBlock) {
    Q8KBlock& block = out[b];
    float of_block[kBlocks];  // the largest magnitudes
    uint32x4_t finite = vdupq_n_u32(~0U);
    for (int i = 0; i < kBlocks; ++i) {
      float32x4_t most = vdupq_n_f32(0.0F);
      for (int v = 0; v < kQuantBlock; v += 4) {
        const float32x4_t magnitude = vabsq_f32(vld1q_f32(x + kQuantBlock * i + v));
        finite = vandq_u32(finite, vcltq_f32(magnitude, vdupq_n_f32(__builtin_inff())));
        most = vmaxq_f32(most, magnitude);
      }
      of_block[i] = vmaxvq_f32(most);
    }
    if (vminvq_u32(finite) == 0) {
      block = kNoNumbersQ8K;
      continue;
    }
    const float largest = vmaxvq_f32(vmaxq_f32(vld1q_f32(of_block), vld1q_f32(of_block + 4)));
    const bool tiny = largest < 0x1.0p-116F;
    const float steps_of_one = tiny ? 0.0F : 8.0F / largest, finest = tiny ? 0.0F : 1016.0F / largest;
    block.d = largest / 1016.0F;
    for (uint8_t& blocks : block.wide) blocks = 0;
    block.unused = 0;
    for (int i = 0; i < kBlocks; ++i) {
      const float32x4_t whole = vrndpq_f32(vmulq_n_f32(vdupq_n_f32(of_block[i]), steps_of_one));
      const float steps =
          vgetq_lane_f32(vminq_f32(vmaxq_f32(whole, vdupq_n_f32(1.0F)), vdupq_n_f32(8.0F)), 0);
      const float inverse = finest / steps;
      block.steps[i] = static_cast<uint8_t>(steps);
      int32_t sums[2], magnitudes[2];
      for (int of_block = 0; of_block < 2; ++of_block) {
        const int h = 2 * i + of_block;
        int32x4_t q[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v)
          q[v] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * h + 4 * v), inverse));  // to nearest even
        const int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
        const int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
        vst1q_s8(block.q + 16 * h, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        sums[of_block] = vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
        magnitudes[of_block] = vaddvq_s32(vaddq_s32(vaddq_s32(vabsq_s32(q[0]), vabsq_s32(q[1])),
                                                    vaddq_s32(vabsq_s32(q[2]), vabsq_s32(q[3]))));
        block.half_sums[h] = static_cast<int16_t>(block.steps[i] * sums[of_block]);
      }
      block.block_sums[i] = static_cast<int16_t>(block.steps[i] * (sums[0] + sums[1]));
      SetWide(i, magnitudes, sums[0] + sums[1], block.wide);
    }
  }
}

}  // namespace longspec::kernels::neon
