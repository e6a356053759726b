// SPDX-License-Identifier: Apache-2.0
//
// What the matrix products mean: the loops every other table is compared with, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace longspec::kernels::reference {
namespace {

bool HasMin(WeightFormat f) { return f == WeightFormat::kU4Min || f == WeightFormat::kS8Min; }
bool IsU4(WeightFormat f) { return f == WeightFormat::kU4 || f == WeightFormat::kU4Min; }

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
    block = {};
    for (int h = 0; h < 2; ++h, x += kHalf) {
      float amax = 0.0F;
      for (int i = 0; i < kHalf; ++i) amax = std::max(amax, std::fabs(x[i]));
      const float inverse = amax < 0x1.0p-120F ? 0.0F : 127.0F / amax;  // the quotient must be a float
      block.d[h] = amax / 127.0F;
      for (int i = 0; i < kHalf; ++i) {
        const int q = static_cast<int>(std::nearbyint(x[i] * inverse));
        block.q[h * kHalf + i] = static_cast<int8_t>(q);
        block.sum[h] += q;
      }
    }
    block.s =
        std::fma(block.d[1], static_cast<float>(block.sum[1]), block.d[0] * static_cast<float>(block.sum[0]));
  }
}

void MatmulQ8(const MatmulQ8Args& a) {
  const WeightFormat format = a.w->format;
  const auto n_block = static_cast<int>(a.w->n_in / kQuantBlock);
  const size_t block_bytes = IsU4(format) ? 256 : 512;
  ForEachOutput(a, [&](int row, const std::byte* group, int lane) {
    const std::byte* scales = group + static_cast<size_t>(n_block) * block_bytes;
    const std::byte* minima = scales + static_cast<size_t>(n_block) * kRowGroup * 2;
    float acc = 0.0F;
    for (int b = 0; b < n_block; ++b) {
      const Q8Block& x = a.x[int64_t{row} * n_block + b];
      int dot[2] = {};
      for (int k = 0; k < kQuantBlock; ++k) {
        dot[k / 16] += QuantAt(format, group + static_cast<size_t>(b) * block_bytes, lane, k) * x.q[k];
      }
      const size_t at = (static_cast<size_t>(b) * kRowGroup + static_cast<size_t>(lane)) * 2;
      const float sum = std::fma(static_cast<float>(dot[1]), x.d[1], static_cast<float>(dot[0]) * x.d[0]);
      acc = std::fma(HalfToFloat(LoadU16(scales + at)), sum, acc);
      if (HasMin(format)) acc = std::fma(HalfToFloat(LoadU16(minima + at)), x.s, acc);
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

}  // namespace longspec::kernels::reference
