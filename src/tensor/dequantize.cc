// SPDX-License-Identifier: Apache-2.0
#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace longspec {
namespace {

// Every product below is exact in f32 up to the last operation (an 11-bit scale times small integers), so the
// value is the correctly rounded one whatever the order of the factors.

void DecodeBlock(const BlockQ4_0& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>((b.qs[i] & 0xF) - 8) * d;
    dst[i + 16] = static_cast<float>((b.qs[i] >> 4) - 8) * d;
  }
}

void DecodeBlock(const BlockQ4_1& b, float* dst) {
  const float d = HalfToFloat(b.d), m = HalfToFloat(b.m);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>(b.qs[i] & 0xF) * d + m;
    dst[i + 16] = static_cast<float>(b.qs[i] >> 4) * d + m;
  }
}

int FifthBit(const uint8_t (&qh)[4], int i) { return ((qh[i / 8] >> (i % 8)) & 1) << 4; }

void DecodeBlock(const BlockQ5_0& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>(((b.qs[i] & 0xF) | FifthBit(b.qh, i)) - 16) * d;
    dst[i + 16] = static_cast<float>(((b.qs[i] >> 4) | FifthBit(b.qh, i + 16)) - 16) * d;
  }
}

void DecodeBlock(const BlockQ5_1& b, float* dst) {
  const float d = HalfToFloat(b.d), m = HalfToFloat(b.m);
  for (int i = 0; i < 16; ++i) {
    dst[i] = static_cast<float>((b.qs[i] & 0xF) | FifthBit(b.qh, i)) * d + m;
    dst[i + 16] = static_cast<float>((b.qs[i] >> 4) | FifthBit(b.qh, i + 16)) * d + m;
  }
}

void DecodeBlock(const BlockQ8_0& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 32; ++i) dst[i] = static_cast<float>(b.qs[i]) * d;
}

int Nibble(const uint8_t (&qs)[128], int sub_block, int l) {
  const uint8_t byte = qs[32 * (sub_block / 2) + l];
  return sub_block % 2 == 0 ? byte & 0xF : byte >> 4;
}

void DecodeBlock(const BlockQ4_K& b, float* dst) {
  const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin packed = UnpackScaleMin(b.scales, s);
    const float scale = d * static_cast<float>(packed.scale), min = dmin * static_cast<float>(packed.min);
    for (int l = 0; l < 32; ++l) dst[32 * s + l] = scale * static_cast<float>(Nibble(b.qs, s, l)) - min;
  }
}

void DecodeBlock(const BlockQ5_K& b, float* dst) {
  const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin packed = UnpackScaleMin(b.scales, s);
    const float scale = d * static_cast<float>(packed.scale), min = dmin * static_cast<float>(packed.min);
    for (int l = 0; l < 32; ++l) {
      const int q = Nibble(b.qs, s, l) | (((b.qh[l] >> s) & 1) << 4);
      dst[32 * s + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void DecodeBlock(const BlockQ6_K& b, float* dst) {
  const float d = HalfToFloat(b.d);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, group = i / 32 % 4, l = i % 32;
    const int low = (b.ql[64 * half + 32 * (group % 2) + l] >> (4 * (group / 2))) & 0xF;
    const int high = (b.qh[32 * half + l] >> (2 * group)) & 3;
    const float scale = d * static_cast<float>(b.scales[i / 16]);
    dst[i] = scale * static_cast<float>((low | (high << 4)) - 32);
  }
}

// Source bytes may have any alignment, so blocks and elements are copied out before they are read.
template <typename Block, int kElements>
void DecodeBlocks(const std::byte* src, int64_t n, float* dst) {
  for (int64_t i = 0; i < n; i += kElements, src += sizeof(Block)) {
    Block block;
    std::memcpy(&block, src, sizeof block);
    DecodeBlock(block, dst + i);
  }
}

template <float (*kConvert)(uint16_t)>
void DecodeHalves(const std::byte* src, int64_t n, float* dst) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t value;
    std::memcpy(&value, src + 2 * i, sizeof value);
    dst[i] = kConvert(value);
  }
}

using RowDecoder = void (*)(const std::byte*, int64_t, float*);

void CopyFloats(const std::byte* src, int64_t n, float* dst) {
  std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

RowDecoder FindDecoder(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CopyFloats;
    case DType::kF16:
      return DecodeHalves<HalfToFloat>;
    case DType::kBF16:
      return DecodeHalves<BFloat16ToFloat>;
    case DType::kQ4_0:
      return DecodeBlocks<BlockQ4_0, 32>;
    case DType::kQ4_1:
      return DecodeBlocks<BlockQ4_1, 32>;
    case DType::kQ5_0:
      return DecodeBlocks<BlockQ5_0, 32>;
    case DType::kQ5_1:
      return DecodeBlocks<BlockQ5_1, 32>;
    case DType::kQ8_0:
      return DecodeBlocks<BlockQ8_0, 32>;
    case DType::kQ4_K:
      return DecodeBlocks<BlockQ4_K, 256>;
    case DType::kQ5_K:
      return DecodeBlocks<BlockQ5_K, 256>;
    case DType::kQ6_K:
      return DecodeBlocks<BlockQ6_K, 256>;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kF64:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

bool CanDequantize(DType dtype) { return FindDecoder(dtype) != nullptr; }

void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* dst) {
  const RowDecoder decode = FindDecoder(dtype);
  LS_CHECK(decode != nullptr && n >= 0 && n % Info(dtype).block_elements == 0);
  if (n > 0) decode(src, n, dst);
}

}  // namespace longspec
