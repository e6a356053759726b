// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/data.h"

#include <cmath>
#include <cstring>

#include "kernels/kv_format.h"
#include "kernels/packing.h"
#include "tensor/half.h"

namespace longspec::kernels::testing {
namespace {

uint16_t RandomHalf(Random& random) {
  // One in eight is a denormal or zero.
  if (random.Below(8) == 0) return static_cast<uint16_t>(random.Bits() & 0x83FF);
  return FloatToHalf(random.Float(0.05F));
}

void FillQuantized(std::byte* group, WeightFormat format, int64_t n_in, Fill fill, Random& random) {
  const WeightFormatInfo& info = Info(format);
  const GroupLayout layout = LayoutOf(format, n_in);
  const auto size = [](const GroupPart& part) { return part.n_cells * part.bytes * kRowGroup; };
  const size_t quants = size(layout.quants), scales = size(layout.scales);
  for (size_t i = 0; i < quants; ++i) {
    // Where sums might saturate: every other block is as large as can be.
    const uint32_t end = i / BlockBytes(format) % 2 == 0 && random.Below(2) == 0 ? 0 : 255;
    group[i] = static_cast<std::byte>(fill == Fill::kLargest ? end : random.Bits() & 255);
  }
  for (size_t i = 0; i < size(layout.factors); ++i) {
    const int least = info.minima ? 0 : -info.factors, n = info.factors - least;
    const int largest = info.minima ? info.factors - 1 : least;
    group[quants + scales + i] =
        static_cast<std::byte>(fill == Fill::kLargest ? largest : least + random.Below(n));
  }
  if (info.scale_bytes == 1) {
    // One in eight is a denormal or almost.
    for (size_t i = 0; i < scales; ++i)
      group[quants + i] =
          static_cast<std::byte>(random.Below(8) == 0 ? random.Below(4) : 112 + random.Below(16));
    return;
  }
  for (size_t i = 0; i < scales; i += 2) {
    const uint16_t h = RandomHalf(random);
    std::memcpy(group + quants + i, &h, sizeof(h));
  }
}

void FillFloats(std::byte* group, WeightFormat format, int64_t n_in, Random& random) {
  const size_t n = static_cast<size_t>(n_in) * kRowGroup;
  for (size_t i = 0; i < n; ++i) {
    const float f = random.Float();
    if (format == WeightFormat::kF32) {
      std::memcpy(group + i * 4, &f, sizeof(f));
    } else {
      const uint16_t h = format == WeightFormat::kF16 ? RandomHalf(random) : FloatToBFloat16(f);
      std::memcpy(group + i * 2, &h, sizeof(h));
    }
  }
}

}  // namespace

float Random::Float(float scale) {
  const float unit = static_cast<float>(static_cast<int32_t>(Bits())) * 0x1.0p-31F;
  return std::ldexp(unit * scale, -Below(6));
}

std::vector<float> Random::Floats(size_t n, float scale) {
  std::vector<float> values(n);
  for (float& v : values) v = Float(scale);
  return values;
}

float TinyNumbers::Next(int exponent) {
  const auto digits = static_cast<float>(random_.Below(4) == 0 ? random_.Below(256) : random_.Below(4));
  const float sign = random_.Below(2) == 0 ? 1.0F : -1.0F;
  return sign * std::ldexp(digits, exponent - random_.Below(12));
}

std::vector<float> TinyNumbers::Floats(size_t n, int exponent) {
  std::vector<float> x(n);
  for (float& f : x) f = Next(exponent);
  return x;
}

std::vector<std::byte> TinyNumbers::Bf16s(size_t n, int exponent) {
  std::vector<std::byte> bytes(2 * n);
  for (size_t i = 0; i < n; ++i) {
    const uint16_t bits = FloatToBFloat16(Next(exponent));
    std::memcpy(bytes.data() + 2 * i, &bits, sizeof(bits));
  }
  return bytes;
}

AlignedBytes::AlignedBytes(size_t size) : data_(static_cast<std::byte*>(std::aligned_alloc(64, size))) {
  std::memset(data_.get(), 0, size);
}

TestMatrix::TestMatrix(WeightFormat format, int64_t n_in, int64_t n_out, Fill fill, uint32_t seed)
    : bytes_(static_cast<size_t>((n_out + kRowGroup - 1) / kRowGroup) * LayoutOf(format, n_in).bytes()) {
  matrix_ = {.data = bytes_.data(),
             .group_bytes = LayoutOf(format, n_in).bytes(),
             .n_out = n_out,
             .n_in = n_in,
             .format = format};
  Random random(seed);
  for (int group = 0; group < n_groups(); ++group) {
    std::byte* out = bytes_.data() + static_cast<size_t>(group) * matrix_.group_bytes;
    if (IsQuantized(format)) {
      FillQuantized(out, format, n_in, fill, random);
    } else {
      FillFloats(out, format, n_in, random);
    }
  }
}

std::vector<Q8Block> TestActivations(int n_rows, int64_t n_in, Fill fill, uint32_t seed) {
  Random random(seed);
  std::vector<Q8Block> blocks(static_cast<size_t>(n_rows) * static_cast<size_t>(n_in / kQuantBlock));
  for (Q8Block& block : blocks) {
    block = {};
    int32_t sum[2] = {};
    const int8_t largest = random.Below(2) == 0 ? 127 : -127;
    for (size_t i = 0; i < kQuantBlock; ++i) {
      block.q[i] = fill == Fill::kLargest ? largest : static_cast<int8_t>(random.Below(255) - 127);
      sum[i / 16] += block.q[i];
    }
    for (float& d : block.d) d = std::fabs(random.Float(0.1F));
    SetSums(sum[0], sum[1], block);
  }
  return blocks;
}

std::vector<Q8KBlock> TestActivationsQ8K(int n_rows, int64_t n_in, Fill fill, uint32_t seed) {
  Random random(seed);
  std::vector<Q8KBlock> blocks(static_cast<size_t>(n_rows) * static_cast<size_t>(n_in / kSuperBlock));
  for (Q8KBlock& block : blocks) {
    block = {};
    const int8_t largest = random.Below(2) == 0 ? 127 : -127;
    const int divisor = fill == Fill::kSmall && (&block - blocks.data()) % 5 != 0 ? 3 : 1;
    for (size_t i = 0; i < kSuperBlock; ++i) {
      block.q[i] =
          fill == Fill::kLargest ? largest : static_cast<int8_t>((random.Below(255) - 127) / divisor);
    }
    block.d = std::fabs(random.Float(0.1F));
    for (uint8_t& steps : block.steps)
      steps = static_cast<uint8_t>(fill == Fill::kLargest ? kMostSteps : 1 + random.Below(kMostSteps));
    SetSums(block);
  }
  return blocks;
}

void SetSums(Q8KBlock& block) {
  for (int h = 0; h < 16; ++h) {
    int sum = 0;
    for (int i = 0; i < 16; ++i) sum += block.q[16 * h + i];
    block.half_sums[h] = static_cast<int16_t>(block.steps[h / 2] * sum);
  }
  for (int b = 0; b < 8; ++b)
    block.block_sums[b] = static_cast<int16_t>(block.half_sums[2 * b] + block.half_sums[2 * b + 1]);
  for (uint8_t& blocks : block.wide) blocks = 0;
  for (int b = 0; b < 8; ++b) {
    int magnitudes[2] = {}, sum = 0;
    for (int i = 0; i < kQuantBlock; ++i) {
      const int q = block.q[kQuantBlock * b + i];
      magnitudes[i / 16] += std::abs(q);
      sum += q;
    }
    SetWide(b, magnitudes, sum, block.wide);
  }
}

namespace {

void AppendHalf(uint16_t h, std::vector<std::byte>* bytes) {
  bytes->push_back(static_cast<std::byte>(h & 0xFF));
  bytes->push_back(static_cast<std::byte>(h >> 8));
}

// The codes of n_positions positions, then their scales.
void AppendPositions(KvType type, int head_dim, size_t n_positions, Random& random,
                     std::vector<std::byte>* bytes) {
  const KvFormat format = FormatOf(type, head_dim);
  for (size_t i = 0; i < n_positions * format.n_codes; ++i) {
    if (IsQuantized(type)) {
      for (size_t byte = 0; byte < format.code_bytes; ++byte)
        bytes->push_back(static_cast<std::byte>(random.Bits() & 0xFF));
      continue;
    }
    const float f = random.Float(2.0F);
    if (type == KvType::kF32) {
      const auto* raw = reinterpret_cast<const std::byte*>(&f);
      bytes->insert(bytes->end(), raw, raw + sizeof(f));
    } else {
      AppendHalf(type == KvType::kF16 ? FloatToHalf(f) : FloatToBFloat16(f), bytes);
    }
  }
  // Where scales of values have a sign, arithmetic "i8" knows no numbers.
  const uint16_t bits = type == KvType::kI8 ? 0x7FFF : 0xFFFF;
  for (size_t i = 0; i < n_positions * format.n_scales; ++i) AppendHalf(RandomHalf(random) & bits, bytes);
}

}  // namespace

std::vector<std::byte> StoredKeys(KvType type, int head_dim, uint32_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes;
  for (int block = 0; block < kChunk / kKeyGroup; ++block)
    AppendPositions(type, head_dim, kKeyGroup, random, &bytes);
  bytes.shrink_to_fit();
  return bytes;
}

std::vector<std::byte> StoredValues(KvType type, int head_dim, uint32_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes;
  for (int key = 0; key < kChunk; ++key) AppendPositions(type, head_dim, 1, random, &bytes);
  bytes.shrink_to_fit();
  return bytes;
}

const char* Name(WeightFormat format) { return Info(format).name; }

const char* Name(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBF16Amx:
      return "bf16-amx";
    case KvType::kQ8_0:
      return "q8_0";
    case KvType::kQ4_0:
      return "q4_0";
    case KvType::kI8:
      return "i8";
    default:
      return "bf16";
  }
}

}  // namespace longspec::kernels::testing
