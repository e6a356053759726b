// SPDX-License-Identifier: Apache-2.0
#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace longspec {
namespace {

// round(x / step) within [low, high]; a zero step encodes zeros, and so does a quotient that is no number.
int Round(float x, float step, int low, int high) {
  const float quotient = std::nearbyint(x / step);
  if (step == 0 || std::isnan(quotient)) return std::clamp(0, low, high);
  return static_cast<int>(std::clamp(quotient, static_cast<float>(low), static_cast<float>(high)));
}

// The step as the reader will see it, so that values are rounded against what they will decode to.
float StoreHalf(float value, uint16_t* stored) {
  *stored = FloatToHalf(value);
  return HalfToFloat(*stored);
}

// The element of largest magnitude, with its sign.
float Extreme(const float* src, int n) {
  return *std::max_element(src, src + n, [](float a, float b) { return std::abs(a) < std::abs(b); });
}

uint8_t Pair(int low, int high) { return static_cast<uint8_t>((low & 0xF) | ((high & 0xF) << 4)); }

void SetFifthBit(uint8_t (&qh)[4], int i, int q) { qh[i / 8] |= static_cast<uint8_t>((q >> 4) << (i % 8)); }

// Symmetric types reach one step further below zero than above, so the largest element becomes the lowest
// code.
void EncodeBlock(const float* src, BlockQ4_0* b) {
  const float d = StoreHalf(Extreme(src, 32) / -8, &b->d);
  for (int i = 0; i < 16; ++i) b->qs[i] = Pair(Round(src[i], d, -8, 7) + 8, Round(src[i + 16], d, -8, 7) + 8);
}

void EncodeBlock(const float* src, BlockQ5_0* b) {
  const float d = StoreHalf(Extreme(src, 32) / -16, &b->d);
  for (int i = 0; i < 16; ++i) {
    const int low = Round(src[i], d, -16, 15) + 16, high = Round(src[i + 16], d, -16, 15) + 16;
    b->qs[i] = Pair(low, high);
    SetFifthBit(b->qh, i, low);
    SetFifthBit(b->qh, i + 16, high);
  }
}

void EncodeBlock(const float* src, BlockQ4_1* b) {
  const auto [min, max] = std::minmax_element(src, src + 32);
  const float d = StoreHalf((*max - *min) / 15, &b->d), m = StoreHalf(*min, &b->m);
  for (int i = 0; i < 16; ++i) b->qs[i] = Pair(Round(src[i] - m, d, 0, 15), Round(src[i + 16] - m, d, 0, 15));
}

void EncodeBlock(const float* src, BlockQ5_1* b) {
  const auto [min, max] = std::minmax_element(src, src + 32);
  const float d = StoreHalf((*max - *min) / 31, &b->d), m = StoreHalf(*min, &b->m);
  for (int i = 0; i < 16; ++i) {
    const int low = Round(src[i] - m, d, 0, 31), high = Round(src[i + 16] - m, d, 0, 31);
    b->qs[i] = Pair(low, high);
    SetFifthBit(b->qh, i, low);
    SetFifthBit(b->qh, i + 16, high);
  }
}

void EncodeBlock(const float* src, BlockQ8_0* b) {
  const float d = StoreHalf(std::abs(Extreme(src, 32)) / 127, &b->d);
  for (int i = 0; i < 32; ++i) b->qs[i] = static_cast<int8_t>(Round(src[i], d, -127, 127));
}

// Chooses d, dmin and the packed scales of a K block with minima, and the codes q (256) in [0, max_code].
template <typename Block>
void EncodeScaleMins(const float* src, int max_code, Block* b, int* q) {
  float scales[8], mins[8];
  for (int s = 0; s < 8; ++s) {
    const auto [min, max] = std::minmax_element(src + 32 * s, src + 32 * (s + 1));
    mins[s] = std::max(-*min, 0.0F);
    scales[s] = std::max(*max + mins[s], 0.0F) / static_cast<float>(max_code);
  }
  const float d = StoreHalf(*std::max_element(scales, scales + 8) / 63, &b->d);
  const float dmin = StoreHalf(*std::max_element(mins, mins + 8) / 63, &b->dmin);
  ScaleMin pairs[8];
  for (int s = 0; s < 8; ++s) {
    pairs[s] = {Round(scales[s], d, 0, 63), Round(mins[s], dmin, 0, 63)};
    const float step = d * static_cast<float>(pairs[s].scale), min = dmin * static_cast<float>(pairs[s].min);
    for (int i = 32 * s; i < 32 * (s + 1); ++i) q[i] = Round(src[i] + min, step, 0, max_code);
  }
  PackScaleMins(pairs, b->scales);
}

void PackNibbles(const int* q, uint8_t (&qs)[128]) {
  for (int i = 0; i < 128; ++i) qs[i] = Pair(q[64 * (i / 32) + i % 32], q[64 * (i / 32) + 32 + i % 32]);
}

void EncodeBlock(const float* src, BlockQ4_K* b) {
  int q[256];
  EncodeScaleMins(src, 15, b, q);
  PackNibbles(q, b->qs);
}

void EncodeBlock(const float* src, BlockQ5_K* b) {
  int q[256];
  EncodeScaleMins(src, 31, b, q);
  PackNibbles(q, b->qs);
  for (int i = 0; i < 256; ++i) b->qh[i % 32] |= static_cast<uint8_t>((q[i] >> 4) << (i / 32));
}

void EncodeBlock(const float* src, BlockQ6_K* b) {
  float scales[16];
  for (int s = 0; s < 16; ++s) scales[s] = Extreme(src + 16 * s, 16) / -32;
  const float d = StoreHalf(Extreme(scales, 16) / -128, &b->d);
  for (int s = 0; s < 16; ++s) b->scales[s] = static_cast<int8_t>(Round(scales[s], d, -128, 127));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, group = i / 32 % 4, l = i % 32;
    const int q = Round(src[i], d * static_cast<float>(b->scales[i / 16]), -32, 31) + 32;
    b->ql[64 * half + 32 * (group % 2) + l] |= static_cast<uint8_t>((q & 0xF) << (4 * (group / 2)));
    b->qh[32 * half + l] |= static_cast<uint8_t>((q >> 4) << (2 * group));
  }
}

template <typename Block, int kElements>
void EncodeBlocks(const float* src, int64_t n, std::byte* dst) {
  for (int64_t i = 0; i < n; i += kElements, dst += sizeof(Block)) {
    Block block{};
    EncodeBlock(src + i, &block);
    std::memcpy(dst, &block, sizeof block);
  }
}

template <uint16_t (*kConvert)(float)>
void EncodeHalves(const float* src, int64_t n, std::byte* dst) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t value = kConvert(src[i]);
    std::memcpy(dst + 2 * i, &value, sizeof value);
  }
}

void CopyFloats(const float* src, int64_t n, std::byte* dst) {
  std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

using RowEncoder = void (*)(const float*, int64_t, std::byte*);

RowEncoder FindEncoder(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CopyFloats;
    case DType::kF16:
      return EncodeHalves<FloatToHalf>;
    case DType::kBF16:
      return EncodeHalves<FloatToBFloat16>;
    case DType::kQ4_0:
      return EncodeBlocks<BlockQ4_0, 32>;
    case DType::kQ4_1:
      return EncodeBlocks<BlockQ4_1, 32>;
    case DType::kQ5_0:
      return EncodeBlocks<BlockQ5_0, 32>;
    case DType::kQ5_1:
      return EncodeBlocks<BlockQ5_1, 32>;
    case DType::kQ8_0:
      return EncodeBlocks<BlockQ8_0, 32>;
    case DType::kQ4_K:
      return EncodeBlocks<BlockQ4_K, 256>;
    case DType::kQ5_K:
      return EncodeBlocks<BlockQ5_K, 256>;
    case DType::kQ6_K:
      return EncodeBlocks<BlockQ6_K, 256>;
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

void QuantizeRow(DType dtype, const float* src, int64_t n, std::byte* dst) {
  const RowEncoder encode = FindEncoder(dtype);
  LS_CHECK(encode != nullptr && n >= 0 && n % Info(dtype).block_elements == 0);
  if (n > 0) encode(src, n, dst);
}

std::vector<std::byte> QuantizeTensor(const TensorView& tensor, DType dtype) {
  const int64_t n = tensor.shape[0];
  const size_t row_bytes = RowBytes(dtype, n);
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(tensor.n_rows()));
  std::vector<float> row(static_cast<size_t>(n));
  for (int64_t r = 0; r < tensor.n_rows(); ++r) {
    DequantizeRow(tensor.dtype, tensor.row(r), n, row.data());
    QuantizeRow(dtype, row.data(), n, bytes.data() + static_cast<size_t>(r) * row_bytes);
  }
  return bytes;
}

}  // namespace longspec
