// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace longspec::kernels::reference {
namespace {

float Load(KvType type, const std::byte* base, size_t index) {
  if (type == KvType::kF32) {
    float f;
    std::memcpy(&f, base + index * 4, sizeof(f));
    return f;
  }
  uint16_t h;
  std::memcpy(&h, base + index * 2, sizeof(h));
  return type == KvType::kF16 ? HalfToFloat(h) : BFloat16ToFloat(h);
}

void Store(KvType type, std::byte* base, size_t index, float f) {
  if (type == KvType::kF32) {
    std::memcpy(base + index * 4, &f, sizeof(f));
    return;
  }
  const uint16_t h = type == KvType::kF16 ? FloatToHalf(f) : FloatToBFloat16(f);
  std::memcpy(base + index * 2, &h, sizeof(h));
}

// Where value d of the key at `offset` lies in its chunk.
size_t KeyIndex(int offset, int d, int head_dim) {
  return (static_cast<size_t>(offset / kKeyGroup) * static_cast<size_t>(head_dim) + static_cast<size_t>(d)) *
             kKeyGroup +
         static_cast<size_t>(offset % kKeyGroup);
}

}  // namespace

void Scores(const ScoresArgs& a) {
  for (int row = 0; row < a.n_rows; ++row) {
    for (int key = a.block_begin * kKeyGroup; key < a.block_end * kKeyGroup; ++key) {
      float dot = 0.0F;
      for (int d = 0; d < a.head_dim; ++d) {
        dot = std::fma(a.q[int64_t{row} * a.head_dim + d], Load(a.type, a.keys, KeyIndex(key, d, a.head_dim)),
                       dot);
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

void Values(const ValuesArgs& a) {
  for (int row = 0; row < a.n_rows; ++row) {
    for (int key = 0; key < a.n_keys[row]; ++key) {
      for (int d = 0; d < a.head_dim; ++d) {
        float& o = a.o[row * a.o_stride + d];
        const size_t index =
            static_cast<size_t>(key) * static_cast<size_t>(a.head_dim) + static_cast<size_t>(d);
        o = std::fma(a.p[row * a.p_stride + key], Load(a.type, a.values, index), o);
      }
    }
  }
}

void GatheredValues(const GatheredValuesArgs& a) {
  for (int row = 0; row < a.n_rows; ++row) {
    for (int key = 0; key < a.n_keys; ++key) {
      for (int d = 0; d < a.head_dim; ++d) {
        float& o = a.o[row * a.o_stride + d];
        o = std::fma(a.p[row * a.p_stride + key], Load(a.type, a.values[key], static_cast<size_t>(d)), o);
      }
    }
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
  for (int d = 0; d < a.head_dim; ++d) {
    Store(a.k_type, a.keys, KeyIndex(a.offset, d, a.head_dim), a.k[d]);
    Store(a.v_type, a.values,
          static_cast<size_t>(a.offset) * static_cast<size_t>(a.head_dim) + static_cast<size_t>(d), a.v[d]);
  }
}

}  // namespace longspec::kernels::reference
