// SPDX-License-Identifier: Apache-2.0
//
// What the matrix products mean: the loops every other table is compared with, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/size.h"
#include "kernels/reference/bf16_sums.h"
#include "kernels/reference/reference.h"
#include "tensor/half.h"
#include "tensor/weight_lines.h"

namespace longspec::kernels::reference {
namespace {

const WeightFormatInfo& Info(WeightFormat format) { return kWeightFormats[static_cast<size_t>(format)]; }
uint16_t LoadU16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

size_t BlockBytes(WeightFormat format) { return 64 * static_cast<size_t>(Info(format).bits); }

// The integers w of one lane of a group, block after block.
std::vector<int> QuantsOf(WeightFormat format, const std::byte* group, int n_block, int lane) {
  const WeightLines& lines = kWeightLines[Info(format).bits];
  std::vector<int> quants;
  quants.reserve(static_cast<size_t>(n_block) * kQuantBlock);
  for (const std::byte* block = group; n_block > 0; --n_block, block += BlockBytes(format)) {
    for (int k = 0; k < kQuantBlock; ++k) {
      const WeightLine& line = lines.of[k / 4];
      int quant = 0;
      for (const LinePart& part : std::span(line.parts).first(static_cast<size_t>(line.n_parts))) {
        const int byte = std::to_integer<int>(block[64 * part.line + 4 * lane + k % 4]);
        quant |= (byte >> part.from & ((1 << part.n) - 1)) << part.to;
      }
      const int8_t* values = Info(format).values;
      quants.push_back(values != nullptr ? values[quant] : quant - Info(format).offset);
    }
  }
  return quants;
}

// What follows a group's quants: rows of 16 numbers, one for each lane.
class GroupScales {
 public:
  GroupScales(const std::byte* scales, int lane) : scales_(scales), lane_(lane) {}

  float Half(int row) const { return HalfToFloat(LoadU16(scales_ + At(row) * 2)); }
  float PowerOfTwo(int row) const { return std::ldexp(1.0F, std::to_integer<int>(scales_[At(row)]) - 128); }
  // Of `rows` rows of halves followed by 8-bit factors.
  int Factor(int rows, int index) const {
    return std::to_integer<int>(scales_[static_cast<size_t>(rows) * kRowGroup * 2 + At(index)]);
  }
  int SignedFactor(int rows, int index) const { return static_cast<int8_t>(Factor(rows, index)); }

 private:
  size_t At(int row) const { return static_cast<size_t>(row) * kRowGroup + static_cast<size_t>(lane_); }

  const std::byte* scales_;
  int lane_;
};

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

// For every output row that the arguments ask for, of_lane(group, lane) returns what gives its product with a
// row of x.
template <typename Args, typename F>
void ForEachOutput(const Args& a, F of_lane) {
  for (int group = a.group_begin; group < a.group_end; ++group) {
    for (int lane = 0; lane < kRowGroup; ++lane) {
      const int64_t o = int64_t{group} * kRowGroup + lane;
      if (o >= a.w->n_out) break;
      const auto product = of_lane(a.w->data + static_cast<size_t>(group) * a.w->group_bytes, lane);
      for (int row = 0; row < a.n_rows; ++row) {
        const float acc = product(row);
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
  ForEachOutput(a, [&](const std::byte* group, int lane) {
    const GroupScales scales(group + static_cast<size_t>(n_block) * BlockBytes(format), lane);
    return [&a, format, n_block, scales, w = QuantsOf(format, group, n_block, lane)](int row) {
      float acc = 0.0F;
      for (int b = 0; b < n_block; ++b) {
        const Q8Block& x = a.x[int64_t{row} * n_block + b];
        int dot[2] = {};
        for (int k = 0; k < kQuantBlock; ++k) dot[k / 16] += w[Z(kQuantBlock * b + k)] * x.q[k];
        const float sum = std::fma(static_cast<float>(dot[1]), x.d[1], static_cast<float>(dot[0]) * x.d[0]);
        const float scale = Info(format).scale_bytes == 1 ? scales.PowerOfTwo(b) : scales.Half(b);
        acc = std::fma(scale, sum, acc);
        if (Info(format).minima) acc = std::fma(scales.Half(n_block + b), x.s, acc);
      }
      return acc;
    };
  });
}

void QuantizeQ8K(const float* x, int n, Q8KBlock* out) {
  for (int b = 0; b < n / kSuperBlock; ++b, x += kSuperBlock) {
    Q8KBlock& block = out[b];
    if (!std::all_of(x, x + kSuperBlock, [](float f) { return std::isfinite(f); })) {
      block = kNoNumbersQ8K;
      continue;
    }
    block = {};
    float amax = 0.0F, of_block[8] = {};
    for (int i = 0; i < kSuperBlock; ++i) {
      of_block[i / kQuantBlock] = std::max(of_block[i / kQuantBlock], std::fabs(x[i]));
      amax = std::max(amax, std::fabs(x[i]));
    }
    const bool tiny = amax < 0x1.0p-116F;  // the quotients must be floats
    const float steps_of_one = tiny ? 0.0F : 8.0F / amax, finest = tiny ? 0.0F : 1016.0F / amax;
    block.d = amax / 1016.0F;
    for (int i = 0; i < kSuperBlock; ++i) {
      const int of = i / kQuantBlock;
      const float steps = std::clamp(std::ceil(of_block[of] * steps_of_one), 1.0F, 8.0F);
      block.steps[of] = static_cast<uint8_t>(steps);
      const int q = static_cast<int>(std::nearbyint(x[i] * (finest / steps)));
      block.q[i] = static_cast<int8_t>(q);
      block.half_sums[i / 16] = static_cast<int16_t>(block.half_sums[i / 16] + block.steps[of] * q);
      block.block_sums[of] = static_cast<int16_t>(block.block_sums[of] + block.steps[of] * q);
    }
    for (int of = 0; of < 8; ++of) {
      int magnitudes[2] = {}, sum = 0;
      for (int i = 0; i < kQuantBlock; ++i) {
        const int q = block.q[kQuantBlock * of + i];
        magnitudes[i / 16] += std::abs(q);
        sum += q;
      }
      SetWide(of, magnitudes, sum, block.wide);
    }
  }
}

void MatmulQ8K(const MatmulQ8KArgs& a) {
  const WeightFormat format = a.w->format;
  const bool has_min = Info(format).minima, has_halves = Info(format).halves;
  const auto n_super = static_cast<int>(a.w->n_in / kSuperBlock), n_block = 8 * n_super;
  const int n_numbers = has_min ? 2 * n_super : n_super;
  ForEachOutput(a, [&](const std::byte* group, int lane) {
    const GroupScales scales(group + static_cast<size_t>(n_block) * BlockBytes(format), lane);
    return [&, scales, w = QuantsOf(format, group, n_block, lane)](int row) {
      float acc = 0.0F;
      for (int super = 0; super < n_super; ++super) {
        const Q8KBlock& x = a.x[int64_t{row} * n_super + super];
        int32_t dots = 0, minima = 0;
        for (int i = 0; i < 8; ++i) {
          const int b = 8 * super + i;
          int dot[2] = {}, sum = 0;  // of each half, and of both
          for (int k = 0; k < kQuantBlock; ++k) {
            const int q = x.q[kQuantBlock * i + k];
            dot[k / 16] += w[Z(kQuantBlock * b + k)] * q;
            sum += q;
          }
          const int steps = x.steps[i];
          if (has_halves) {
            for (int h = 0; h < 2; ++h) dots += steps * scales.SignedFactor(n_numbers, 2 * b + h) * dot[h];
          } else {
            const int factor = has_min ? scales.Factor(n_numbers, b) : scales.SignedFactor(n_numbers, b);
            dots += steps * factor * (dot[0] + dot[1]);
          }
          if (has_min) minima += steps * scales.Factor(n_numbers, n_block + b) * sum;
        }
        float t = scales.Half(super) * static_cast<float>(dots);
        if (has_min) t = std::fma(-scales.Half(n_super + super), static_cast<float>(minima), t);
        acc = std::fma(x.d, t, acc);
      }
      return acc;
    };
  });
}

void MatmulFloat(const MatmulFloatArgs& a) {
  ForEachOutput(a, [&](const std::byte* group, int lane) {
    return [&a, group, lane](int row) {
      float acc = 0.0F;
      for (int64_t k = 0; k < a.w->n_in; ++k) {
        acc = std::fma(FloatAt(a.w->format, group, k, lane), a.x[row * a.x_stride + k], acc);
      }
      return acc;
    };
  });
}

void RoundBf16(const float* x, int n, uint16_t* out) {
  for (int i = 0; i < n; ++i) out[i] = FloatToBFloat16(WithoutDenormals(x[i]));
  for (int i = n; i % kAmxBlock != 0; ++i) out[i] = 0;
}

void MatmulBf16(const MatmulBf16Args& a) {
  const bool tiles = a.w->format == WeightFormat::kBF16Amx;
  ForEachOutput(a, [&](const std::byte* group, int lane) {
    return [&a, tiles, group, lane](int row) {
      const auto x = [&](int64_t k) { return BFloat16ToFloat(a.x[row * a.x_stride + k]); };
      const auto w = [&](int64_t k) { return FloatAt(a.w->format, group, k, lane); };
      return tiles ? SumInTiles(0.0F, a.w->n_in, x, w) : SumInPairs(0.0F, a.w->n_in, x, w);
    };
  });
}

}  // namespace longspec::kernels::reference
