// SPDX-License-Identifier: Apache-2.0
//
// The operations of attention inside a chunk one by one: a thread for a key of some rows, or for a dimension
// of a row. What a pass runs is fused_attention.h, which has to equal these.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/exp.h"
#include "kernels/gpu/integers.h"
#include "kernels/gpu/kv.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

template <KvType T>
struct Scores {
  using Args = ScoresArgs;
  static constexpr int kThreads = 128, kRows = 4;
  static Grid GridOf(const Args& a) {
    return {.width = CeilDiv((a.block_end - a.block_begin) * kKeyGroup, kThreads),
            .height = CeilDiv(a.n_rows, kRows)};
  }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int key = a.block_begin * kKeyGroup + cta.block() * kThreads + cta.thread();
    if (key >= a.block_end * kKeyGroup) return;
    const int row0 = cta.block_y() * kRows;
    const float* q[kRows];
    LONGSPEC_UNROLL
    for (int r = 0; r < kRows; ++r) {
      q[r] = a.q + static_cast<int64_t>(row0 + r < a.n_rows ? row0 + r : row0) * a.head_dim;
    }
    const Key<T> k = Key<T>::At(a.keys, a.head_dim, key);
    float dot[kRows] = {};
    for (int d = 0; d < a.head_dim; ++d) {
      const float value = k.template Value<Cta>(d);
      LONGSPEC_UNROLL
      for (int r = 0; r < kRows; ++r) dot[r] = Cta::Fma(q[r][d], value, dot[r]);
    }
    LONGSPEC_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (row0 + r < a.n_rows) a.out[(row0 + r) * a.out_stride + key] = Cta::Mul(dot[r], a.scale);
    }
  }
};

template <>
struct Scores<KvType::kI8> {
  using Args = ScoresArgs;
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) {
    return {.width = CeilDiv((a.block_end - a.block_begin) * kKeyGroup, kThreads), .height = a.n_rows};
  }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int key = a.block_begin * kKeyGroup + cta.block() * kThreads + cta.thread();
    if (key >= a.block_end * kKeyGroup) return;
    const float* q = a.q + static_cast<int64_t>(cta.block_y()) * a.head_dim;
    const IntegerKey k = IntegerKey::At(a.keys, a.head_dim, key);
    float sum = 0.0F;
    for (int block = 0; block < a.head_dim / kQuantBlock; ++block) {
      float x[kQuantBlock];
      LONGSPEC_UNROLL
      for (int i = 0; i < kQuantBlock; ++i) x[i] = q[block * kQuantBlock + i];
      const Integers of = QueryIntegers<Cta>(x);
      int32_t dot = 0;
      LONGSPEC_UNROLL
      for (int i = 0; i < kQuantBlock / 4; ++i)
        dot = Cta::DotS4(of.words[i], k.Word(block * (kQuantBlock / 4) + i), dot);
      sum = Cta::Fma(k.template Scale<Cta>(block), Cta::Mul(static_cast<float>(dot), of.d), sum);
    }
    a.out[cta.block_y() * a.out_stride + key] = Cta::Mul(sum, a.scale);
  }
};

// Of one group of at most 32 keys: o += p * v in arithmetic "i8". p_of(i) and row(i): of the group's key i.
template <class Cta, class P, class Row>
LONGSPEC_GPU float AddIntegerGroup(const P& p_of, const Row& row, int n_keys, int head_dim, int d, float o) {
  const auto x_of = [&](int i) {
    return Cta::Mul(p_of(i), IntegerValueScale<Cta>(row(i), head_dim, d / kQuantBlock));
  };
  uint32_t largest = 0;
  for (int i = 0; i < n_keys; ++i) {
    const uint32_t bits = Cta::ToBits(x_of(i));
    largest = bits > largest ? bits : largest;
  }
  const auto scale = IntegerScale<Cta>::By(largest);
  int32_t dot = 0;
  for (int i = 0; i < n_keys; ++i) dot += scale.Of(x_of(i)) * static_cast<int8_t>(row(i)[d]);
  return Cta::Fma(static_cast<float>(dot), scale.d, o);
}

// o += p * v over keys [0, n_keys), where row(key) is where a key's values lie.
template <KvType T, class Cta, class Row>
LONGSPEC_GPU void AddValues(const Row& row, const float* p, int n_keys, int head_dim, int d, float* o) {
  float sum = o[d];
  if constexpr (T == KvType::kI8) {
    for (int first = 0; first < n_keys; first += kQuantBlock) {
      sum =
          AddIntegerGroup<Cta>([&](int i) { return p[first + i]; }, [&](int i) { return row(first + i); },
                               n_keys - first < kQuantBlock ? n_keys - first : kQuantBlock, head_dim, d, sum);
    }
  } else {
    for (int key = 0; key < n_keys; ++key)
      sum = Cta::Fma(p[key], ValueAt<T, Cta>(row(key), head_dim, d), sum);
  }
  o[d] = sum;
}

template <KvType T>
struct Values {
  using Args = ValuesArgs;
  static constexpr int kThreads = 64;
  static Grid GridOf(const Args& a) { return {.width = CeilDiv(a.head_dim, kThreads), .height = a.n_rows}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int d = cta.block() * kThreads + cta.thread(), row = cta.block_y();
    if (d >= a.head_dim) return;
    const auto row_bytes = static_cast<size_t>(KvBytes<T>(a.head_dim));
    const auto at = [&](int key) { return a.values + static_cast<size_t>(key) * row_bytes; };
    AddValues<T, Cta>(at, a.p + row * a.p_stride, a.n_keys[row], a.head_dim, d, a.o + row * a.o_stride);
  }
};

template <KvType T>
struct GatheredValues {
  using Args = GatheredValuesArgs;
  static constexpr int kThreads = 64;
  static Grid GridOf(const Args& a) { return {.width = CeilDiv(a.head_dim, kThreads), .height = a.n_rows}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int d = cta.block() * kThreads + cta.thread(), row = cta.block_y();
    if (d >= a.head_dim) return;
    const auto at = [&](int key) { return a.values[key]; };
    AddValues<T, Cta>(at, a.p + row * a.p_stride, a.n_keys, a.head_dim, d, a.o + row * a.o_stride);
  }
};

struct MergeState {
  struct Args {
    float* state;
    const float* chunk;
    int head_dim;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args&) { return {}; }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const float before = a.state[0], next = a.chunk[0];
    const float m = before < next ? next : before;
    const float scale = ExpOf<Cta>(Cta::Sub(before, m)), scale_next = ExpOf<Cta>(Cta::Sub(next, m));
    cta.Sync();  // all threads have read the maximum
    if (cta.thread() == 0) {
      a.state[0] = m;
      a.state[1] = Cta::Fma(a.state[1], scale, Cta::Mul(a.chunk[1], scale_next));
    }
    for (int d = kStateHeader + cta.thread(); d < kStateHeader + a.head_dim; d += kThreads) {
      a.state[d] = Cta::Fma(a.state[d], scale, Cta::Mul(a.chunk[d], scale_next));
    }
  }
};

// For each number (each.h).
struct FinishState {
  using Result = float;
  const float* state;
  template <class Cta>
  LONGSPEC_GPU float At(int d) const {
    return Cta::Mul(state[kStateHeader + d], Cta::Div(1.0F, state[1]));
  }
};

}  // namespace longspec::kernels::gpu
