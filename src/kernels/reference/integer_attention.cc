// SPDX-License-Identifier: Apache-2.0
//
// Attention in arithmetic "i8" (ops.h).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kv_format.h"
#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace longspec::kernels::reference {
namespace {

constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7F800000;
constexpr float kLeastMagnitude = 0x1p-120F;

// 32 numbers, d * q each.
struct Integers {
  int q[kQuantBlock];
  float d;
};

// `largest`: the bits of the largest magnitude.
Integers Quantized(const float* x, uint32_t largest) {
  Integers out = {.q = {}, .d = std::numeric_limits<float>::quiet_NaN()};
  if (largest >= kInfinity) return out;
  const auto a = std::bit_cast<float>(largest);
  out.d = a / 127.0F;
  if (a < kLeastMagnitude) return out;
  for (int i = 0; i < kQuantBlock; ++i) out.q[i] = static_cast<int>(std::rint(x[i] * (127.0F / a)));
  return out;
}

Integers Query(const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < kQuantBlock; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & ~kSign);
  return Quantized(x, largest);
}

// A number with a sign has the largest bits.
Integers Weights(const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < kQuantBlock; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]));
  return Quantized(x, largest);
}

int8_t ByteAt(const std::byte* at) {
  int8_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float ScaleAt(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return HalfToFloat(bits);
}

// Keys [begin, end), at most 32: value_row(key) is where their values lie.
template <typename ValueRow>
void AddGroup(const ValueRow& value_row, const float* p, int begin, int end, int head_dim, float* o) {
  for (int dims = 0; dims < head_dim; dims += kQuantBlock) {
    float x[kQuantBlock] = {};
    for (int key = begin; key < end; ++key)
      x[key - begin] = p[key] * ScaleAt(value_row(key) + head_dim + dims / kQuantBlock * 2);
    const Integers weights = Weights(x);
    for (int d = dims; d < dims + kQuantBlock; ++d) {
      int dot = 0;
      for (int key = begin; key < end; ++key) dot += weights.q[key - begin] * ByteAt(value_row(key) + d);
      o[d] = std::fma(static_cast<float>(dot), weights.d, o[d]);
    }
  }
}

template <typename ValueRow>
void AddKeys(const ValueRow& value_row, const float* p, int n_keys, int head_dim, float* o) {
  for (int key = 0; key < n_keys; key += kQuantBlock)
    AddGroup(value_row, p, key, std::min(key + kQuantBlock, n_keys), head_dim, o);
}

}  // namespace

void ScoresI8(const ScoresArgs& a) {
  const KvFormat format = FormatOf(KvType::kI8, a.head_dim);
  for (int row = 0; row < a.n_rows; ++row) {
    const float* q = a.q + int64_t{row} * a.head_dim;
    for (int key = a.block_begin * kKeyGroup; key < a.block_end * kKeyGroup; ++key) {
      const std::byte* block = a.keys + static_cast<size_t>(key / kKeyGroup) * kKeyGroup * format.bytes();
      const int lane = key % kKeyGroup;
      const std::byte* scales = block + kKeyGroup * format.codes_bytes() + lane * 2;
      float acc = 0.0F;
      for (int dims = 0; dims < a.head_dim; dims += kQuantBlock) {
        const Integers query = Query(q + dims);
        int dot = 0;
        for (int d = dims; d < dims + kQuantBlock; ++d)
          dot += query.q[d - dims] * ByteAt(block + (d / 4 * kKeyGroup + lane) * 4 + d % 4);
        const float scale = ScaleAt(scales + dims / kQuantBlock * kKeyGroup * 2);
        acc = std::fma(scale, static_cast<float>(dot) * query.d, acc);
      }
      a.out[row * a.out_stride + key] = acc * a.scale;
    }
  }
}

void ValuesI8(const ValuesArgs& a) {
  const size_t row_bytes = FormatOf(KvType::kI8, a.head_dim).bytes();
  const auto value_row = [&](int key) { return a.values + static_cast<size_t>(key) * row_bytes; };
  for (int row = 0; row < a.n_rows; ++row)
    AddKeys(value_row, a.p + row * a.p_stride, a.n_keys[row], a.head_dim, a.o + row * a.o_stride);
}

void GatheredValuesI8(const GatheredValuesArgs& a) {
  const auto value_row = [&](int key) { return a.values[key]; };
  for (int row = 0; row < a.n_rows; ++row)
    AddKeys(value_row, a.p + row * a.p_stride, a.n_keys, a.head_dim, a.o + row * a.o_stride);
}

}  // namespace longspec::kernels::reference
