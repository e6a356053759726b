// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/kv_format.h"
#include "kernels/reference/bf16_sums.h"
#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace longspec::kernels::reference {
namespace {

// ---- Storing
// ----------------------------------------------------------------------------------------------------------

// A block of 32 values in a quantised type: codes not yet packed, and the scale.
struct QuantizedBlock {
  int q[kQuantBlock];
  uint16_t d;
};

uint16_t ScaleBits(float s) {
  const uint16_t h = FloatToHalf(s);
  if ((h & 0x7FFF) == 0) return 0;
  return (h & 0x7C00) == 0x7C00 ? uint16_t{0x7E00} : h;
}

QuantizedBlock Quantize(KvType type, const float* x) {
  uint32_t largest = 0;
  float m = x[0];
  for (int i = 0; i < kQuantBlock; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF;  // NaN is the largest
    if (magnitude <= largest) continue;
    largest = magnitude;
    m = x[i];
  }
  const float s = type == KvType::kQ4_0 ? m / -8.0F : std::fabs(m) / 127.0F;
  QuantizedBlock block;
  block.d = ScaleBits(s);
  const bool usable = block.d != 0 && block.d != 0x7E00;
  const float inverse = usable ? 1.0F / s : 0.0F;
  for (int i = 0; i < kQuantBlock; ++i) {
    if (type == KvType::kQ4_0) {
      block.q[i] = usable ? std::min(15, static_cast<int>(x[i] * inverse + 8.5F)) : 8;
    } else {
      block.q[i] = usable ? static_cast<int>(std::rint(x[i] * inverse)) : 0;
    }
  }
  return block;
}

void StoreFloat(KvType type, std::byte* code, float f) {
  if (type == KvType::kF32) {
    std::memcpy(code, &f, sizeof(f));
    return;
  }
  const uint16_t h = type == KvType::kF16 ? FloatToHalf(f) : FloatToBFloat16(f);
  std::memcpy(code, &h, sizeof(h));
}

// Where a position's numbers go: code i to codes[i * stride * code_bytes], scale i to scales[i * stride * 2].
struct Destination {
  std::byte* codes;
  std::byte* scales;
  size_t stride;
};

// `distance`: of two values whose nibbles share a byte.
void StoreBlock(KvType type, const float* x, size_t block, size_t distance, const Destination& to) {
  const QuantizedBlock quantized = Quantize(type, x);
  std::memcpy(to.scales + block * to.stride * 2, &quantized.d, sizeof(quantized.d));
  if (type != KvType::kQ4_0) {
    const size_t together = FormatOf(type, kQuantBlock).code_bytes;
    for (size_t i = block * kQuantBlock; i < (block + 1) * kQuantBlock; ++i) {
      to.codes[i / together * together * to.stride + i % together] =
          static_cast<std::byte>(quantized.q[i % kQuantBlock]);
    }
    return;
  }
  for (size_t i = 0; i < kQuantBlock / 2; ++i) {
    const size_t low = distance == 1 ? 2 * i : i;
    const int pair = quantized.q[low] | quantized.q[low + distance] << 4;
    to.codes[(block * kQuantBlock / 2 + i) * to.stride] = static_cast<std::byte>(pair);
  }
}

void StoreRow(KvType type, const float* x, int head_dim, size_t distance, const Destination& to) {
  const KvFormat format = FormatOf(type, head_dim);
  for (size_t block = 0; block < format.n_scales; ++block) {
    StoreBlock(type, x + block * kQuantBlock, block, distance, to);
  }
  if (format.n_scales > 0) return;
  for (size_t d = 0; d < format.n_codes; ++d)
    StoreFloat(type, to.codes + d * to.stride * format.code_bytes, x[d]);
}

}  // namespace

void Scores(const ScoresArgs& a) {
  if (a.type == KvType::kI8) return ScoresI8(a);
  for (int row = 0; row < a.n_rows; ++row) {
    const float* q = a.q + int64_t{row} * a.head_dim;
    for (int key = a.block_begin * kKeyGroup; key < a.block_end * kKeyGroup; ++key) {
      const auto rounded = [&](int64_t d) { return RoundToBf16(q[d]); };
      const auto k = [&](int64_t d) {
        return KeyElement(a.type, a.head_dim, a.keys, key, static_cast<int>(d));
      };
      float dot = 0.0F;
      if (a.type == KvType::kBF16) {
        dot = SumInPairs(dot, a.head_dim, rounded, k);
      } else if (a.type == KvType::kBF16Amx) {
        dot = SumInTiles(dot, a.head_dim, rounded, k);
      } else {
        for (int d = 0; d < a.head_dim; ++d) dot = std::fma(q[d], k(d), dot);
      }
      a.out[row * a.out_stride + key] = dot * a.scale;
    }
  }
}

void SoftmaxChunk(float* scores, int n, float* state) {
  const float m = *std::max_element(scores, scores + n) + 0.0F;  // never -0
  float stripe[16] = {};
  for (int i = 0; i < n; ++i) {
    scores[i] = ExpOf(scores[i] - m);
    stripe[i % 16] = stripe[i % 16] + scores[i];
  }
  for (int width = 8; width >= 1; width /= 2) {
    for (int j = 0; j < width; ++j) stripe[j] = stripe[j] + stripe[j + width];
  }
  state[0] = m;
  state[1] = stripe[0];
}

namespace {

// o += p * v for keys [0, n_keys), where value_row(key) is where a key's values lie.
template <typename ValueRow>
void AddValues(KvType type, int head_dim, const ValueRow& value_row, const float* p, int n_keys, float* o) {
  for (int d = 0; d < head_dim; ++d) {
    const auto v = [&](int64_t key) {
      return ValueElement(type, head_dim, value_row(static_cast<int>(key)), d);
    };
    const auto rounded = [&](int64_t key) { return RoundToBf16(p[key]); };
    if (type == KvType::kBF16) {
      o[d] = SumInPairs(o[d], n_keys, rounded, v);
    } else if (type == KvType::kBF16Amx) {
      o[d] = SumInTiles(o[d], n_keys, rounded, v);
    } else {
      for (int key = 0; key < n_keys; ++key) o[d] = std::fma(p[key], v(key), o[d]);
    }
  }
}

}  // namespace

void Values(const ValuesArgs& a) {
  if (a.type == KvType::kI8) return ValuesI8(a);
  const size_t row_bytes = FormatOf(a.type, a.head_dim).bytes();
  const auto value_row = [&](int key) { return a.values + static_cast<size_t>(key) * row_bytes; };
  for (int row = 0; row < a.n_rows; ++row) {
    AddValues(a.type, a.head_dim, value_row, a.p + row * a.p_stride, a.n_keys[row], a.o + row * a.o_stride);
  }
}

void GatheredValues(const GatheredValuesArgs& a) {
  if (a.type == KvType::kI8) return GatheredValuesI8(a);
  const auto value_row = [&](int key) { return a.values[key]; };
  for (int row = 0; row < a.n_rows; ++row) {
    AddValues(a.type, a.head_dim, value_row, a.p + row * a.p_stride, a.n_keys, a.o + row * a.o_stride);
  }
}

void MergeState(float* state, const float* chunk, int head_dim) {
  const float m = std::max(state[0], chunk[0]);
  const float a = ExpOf(state[0] - m), b = ExpOf(chunk[0] - m);
  state[0] = m;
  state[1] = std::fma(state[1], a, chunk[1] * b);
  for (int d = kStateHeader; d < kStateHeader + head_dim; ++d) state[d] = std::fma(state[d], a, chunk[d] * b);
}

void FinishState(const float* state, int head_dim, float* out) {
  const float inverse = 1.0F / state[1];
  for (int d = 0; d < head_dim; ++d) out[d] = state[kStateHeader + d] * inverse;
}

void StoreKv(const StoreKvArgs& a) {
  const KvFormat key = FormatOf(a.k_type, a.head_dim), value = FormatOf(a.v_type, a.head_dim);
  std::byte* block = a.keys + static_cast<size_t>(a.offset / kKeyGroup) * kKeyGroup * key.bytes();
  const auto lane = static_cast<size_t>(a.offset % kKeyGroup);
  StoreRow(a.k_type, a.k, a.head_dim, 1,
           {.codes = block + lane * key.code_bytes,
            .scales = block + kKeyGroup * key.codes_bytes() + lane * 2,
            .stride = kKeyGroup});
  std::byte* row = a.values + static_cast<size_t>(a.offset) * value.bytes();
  StoreRow(a.v_type, a.v, a.head_dim, kQuantBlock / 2,
           {.codes = row, .scales = row + value.codes_bytes(), .stride = 1});
}

}  // namespace longspec::kernels::reference
