// SPDX-License-Identifier: Apache-2.0
//
// What the matrix products mean: the loops every other table is compared with, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/bf16_sums.h"
#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace longspec::kernels::reference {
namespace {

bool HasMin(WeightFormat f) {
  return f == WeightFormat::kU4Min || f == WeightFormat::kS8Min || f == WeightFormat::kSuperU4Min ||
         f == WeightFormat::kSuperS8Min;
}
bool IsU4(WeightFormat f) {
  return f == WeightFormat::kU4 || f == WeightFormat::kU4Min || f == WeightFormat::kSuperU4Min;
}
bool HasSuperBlocks(WeightFormat f) {
  return f == WeightFormat::kSuperU4Min || f == WeightFormat::kSuperS8Min ||
         f == WeightFormat::kSuperS8Halves;
}

uint16_t LoadU16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Weight (lane, k) of one block of 32, as the integer w.
int QuantAt(WeightFormat format, const std::byte* block, int lane, int k) {
  if (IsU4(format)) {
    const int j = (k % 16) / 4, i = k % 4;
    const int byte = std::to_integer<int>(block[64 * j + 4 * lane + i]);
    const int nibble = k < 16 ? byte & 15 : byte >> 4;
    return format == WeightFormat::kU4 ? nibble - 8 : nibble;
  }
  return std::to_integer<int>(block[64 * (k / 4) + 4 * lane + k % 4]) - 128;
}

// What a block's integers are multiplied with: a scale for each half (equal but in *Halves) and the minimum.
struct Scales {
  float d[2] = {};
  float m = 0.0F;
};

// `scales`: what follows the group's quants.
Scales ScalesAt(WeightFormat format, const std::byte* scales, int n_block, int b, int lane) {
  const auto half_at = [&](int row, int block) {
    const size_t index =
        (static_cast<size_t>(row) + static_cast<size_t>(block)) * kRowGroup + static_cast<size_t>(lane);
    return HalfToFloat(LoadU16(scales + index * 2));
  };
  Scales out;
  if (!HasSuperBlocks(format)) {
    out.d[0] = out.d[1] = half_at(0, b);
    if (HasMin(format)) out.m = half_at(n_block, b);
    return out;
  }
  const int n_super = (n_block + 7) / 8;
  const std::byte* factors = scales + static_cast<size_t>(n_super) * kRowGroup * (HasMin(format) ? 4 : 2);
  const auto factor_at = [&](int index) { return std::to_integer<int>(factors[index * kRowGroup + lane]); };
  const float d = half_at(0, b / 8);
  if (format == WeightFormat::kSuperS8Halves) {
    for (int h = 0; h < 2; ++h) out.d[h] = d * static_cast<float>(static_cast<int8_t>(factor_at(2 * b + h)));
    return out;
  }
  out.d[0] = out.d[1] = d * static_cast<float>(factor_at(b));
  out.m = -(half_at(n_super, b / 8) * static_cast<float>(factor_at(n_block + b)));
  return out;
}

float FloatAt(WeightFormat format, const std::byte* group, int64_t k, int lane) {
  const auto index = static_cast<size_t>(k) * kRowGroup + static_cast<size_t>(lane);
  if (format == WeightFormat::kF32) {
    float f;
    std::memcpy(&f, group + index * 4, sizeof(f));
    return f;
  }
  const uint16_t h = LoadU16(group + index * 2);
  return format == WeightFormat::kF16 ? HalfToFloat(h) : BFloat16ToFloat(h);
}

// Calls f(row of x, output row, group, lane) for every output the arguments ask for.
template <typename Args, typename F>
void ForEachOutput(const Args& a, F f) {
  for (int row = 0; row < a.n_rows; ++row) {
    for (int group = a.group_begin; group < a.group_end; ++group) {
      for (int lane = 0; lane < kRowGroup; ++lane) {
        const int64_t o = int64_t{group} * kRowGroup + lane;
        if (o >= a.w->n_out) break;
        const float acc = f(row, a.w->data + static_cast<size_t>(group) * a.w->group_bytes, lane);
        float& y = a.y[row * a.y_stride + o];
        y = a.add ? y + acc : acc;
      }
    }
  }
}

}  // namespace

void QuantizeQ8(const float* x, int n, Q8Block* out) {
  constexpr int kHalf = kQuantBlock / 2;
  for (int b = 0; b < n / kQuantBlock; ++b) {
    Q8Block& block = out[b];
    if (!std::all_of(x, x + kQuantBlock, [](float f) { return std::isfinite(f); })) {
      block = kNoNumbersQ8;
      x += kQuantBlock;
      continue;
    }
    block = {};
    int sum[2] = {};
    for (int h = 0; h < 2; ++h, x += kHalf) {
      float amax = 0.0F;
      for (int i = 0; i < kHalf; ++i) amax = std::max(amax, std::fabs(x[i]));
      const float inverse = amax < 0x1.0p-120F ? 0.0F : 127.0F / amax;  // the quotient must be a float
      block.d[h] = amax / 127.0F;
      for (int i = 0; i < kHalf; ++i) {
        const int q = static_cast<int>(std::nearbyint(x[i] * inverse));
        block.q[h * kHalf + i] = static_cast<int8_t>(q);
        sum[h] += q;
      }
    }
    SetSums(sum[0], sum[1], block);
  }
}

void MatmulQ8(const MatmulQ8Args& a) {
  const WeightFormat format = a.w->format;
  const auto n_block = static_cast<int>(a.w->n_in / kQuantBlock);
  const size_t block_bytes = IsU4(format) ? 256 : 512;
  ForEachOutput(a, [&](int row, const std::byte* group, int lane) {
    const std::byte* scales = group + static_cast<size_t>(n_block) * block_bytes;
    float acc = 0.0F;
    for (int b = 0; b < n_block; ++b) {
      const Q8Block& x = a.x[int64_t{row} * n_block + b];
      int dot[2] = {};
      for (int k = 0; k < kQuantBlock; ++k) {
        dot[k / 16] += QuantAt(format, group + static_cast<size_t>(b) * block_bytes, lane, k) * x.q[k];
      }
      const Scales w = ScalesAt(format, scales, n_block, b, lane);
      if (format == WeightFormat::kSuperS8Halves) {
        for (int h = 0; h < 2; ++h) acc = std::fma(w.d[h], static_cast<float>(dot[h]) * x.d[h], acc);
        continue;
      }
      const float sum = std::fma(static_cast<float>(dot[1]), x.d[1], static_cast<float>(dot[0]) * x.d[0]);
      acc = std::fma(w.d[0], sum, acc);
      if (HasMin(format)) acc = std::fma(w.m, x.s, acc);
    }
    return acc;
  });
}

void MatmulFloat(const MatmulFloatArgs& a) {
  ForEachOutput(a, [&](int row, const std::byte* group, int lane) {
    float acc = 0.0F;
    for (int64_t k = 0; k < a.w->n_in; ++k) {
      acc = std::fma(FloatAt(a.w->format, group, k, lane), a.x[row * a.x_stride + k], acc);
    }
    return acc;
  });
}

void RoundBf16(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = FloatToBFloat16(WithoutDenormals(x[i]));
  for (int i = n; i % kAmxBlock != 0; ++i) out[i] = 0;
}

void MatmulBf16(const MatmulBf16Args& a) {
  const bool tiles = a.w->format == WeightFormat::kBF16Amx;
  ForEachOutput(a, [&](int row, const std::byte* group, int lane) {
    const auto x = [&](int64_t k) { return BFloat16ToFloat(a.x[row * a.x_stride + k]); };
    const auto w = [&](int64_t k) { return FloatAt(a.w->format, group, k, lane); };
    return tiles ? SumInTiles(0.0F, a.w->n_in, x, w) : SumInPairs(0.0F, a.w->n_in, x, w);
  });
}

}  // namespace longspec::kernels::reference
