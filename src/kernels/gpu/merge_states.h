// SPDX-License-Identifier: Apache-2.0
//
// The states that a row's chunks have left, merged in ascending order and divided by their sums: a block of
// threads for each row and head. The running maximum is known before any sum, so only one fma for each chunk
// and dimension is done one after the other.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/exp.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// kDims: at least head_dim.
template <int kDims>
struct MergeStates {
  struct Args {
    const float* states;     // (n_kv_head, n_states, group, kStateHeader + head_dim)
    const int* parts;        // states of a row's chunks, ascending; those of row r are
    const int* part_begins;  // [part_begins[r], part_begins[r + 1])
    const int* out_rows;     // (n_rows) where a row's result goes; null: to its own place
    float* out;              // (n_rows, n_kv_head * group, head_dim)
    int n_rows, n_states, n_kv_head, group, head_dim;
  };
  static constexpr int kThreads = 128, kPiece = 128;  // chunks at a time

  struct Shared {
    float scale[kPiece], scale_next[kPiece], sum[kPiece];
    int state[kPiece];
    float last;  // the running maximum before the piece
  };

  static Grid GridOf(const Args& a) {
    return {.width = a.n_rows, .height = a.n_kv_head * a.group, .shared_bytes = sizeof(Shared)};
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    auto& shared = *reinterpret_cast<Shared*>(cta.Shared());
    const int row = cta.block(), head = cta.block_y() / a.group, thread = cta.thread();
    const int begin = a.part_begins[row], end = a.part_begins[row + 1];
    const auto floats = static_cast<int64_t>(kStateHeader + a.head_dim);
    const float* states =
        a.states + (static_cast<int64_t>(head) * a.n_states * a.group + cta.block_y() % a.group) * floats;
    const int64_t stride = a.group * floats;  // from one state to the next
    float* out =
        a.out + (static_cast<int64_t>(a.out_rows == nullptr ? row : a.out_rows[row]) * a.n_kv_head * a.group +
                 cta.block_y()) *
                    a.head_dim;
    constexpr int kMost = (kDims + kThreads - 1) / kThreads;  // dimensions of a thread
    float o[kMost] = {}, sum = 0.0F;
    for (int first = begin; first < end; first += kPiece) {
      const int n = end - first < kPiece ? end - first : kPiece;
      if (first > begin) cta.Sync();  // the piece before has been read
      if (thread < n) {
        shared.state[thread] = a.parts[first + thread];
        const float* state = states + shared.state[thread] * stride;
        shared.scale_next[thread] = state[0];  // the maximum, for now
        shared.sum[thread] = state[1];
      }
      cta.Sync();
      float before = 0.0F, next = 0.0F, m = 0.0F;
      if (thread < n) {
        next = shared.scale_next[thread];
        before = first == begin ? shared.scale_next[0] : shared.last;
        for (int i = 0; i < thread; ++i) before = Larger(before, shared.scale_next[i]);
        m = Larger(before, next);
      }
      cta.Sync();
      if (thread < n) {
        shared.scale[thread] = ExpOf<Cta>(Cta::Sub(before, m));
        shared.scale_next[thread] = ExpOf<Cta>(Cta::Sub(next, m));
        if (thread == n - 1) shared.last = m;
      }
      cta.Sync();
      int i = 0;
      if (first == begin) {  // the first state is taken as it is
        sum = shared.sum[0];
        LONGSPEC_UNROLL
        for (int j = 0; j < kMost; ++j)
          o[j] = ValueOf(states + shared.state[0] * stride, thread + j * kThreads, a);
        i = 1;
      }
#ifdef __CUDACC__
#pragma unroll 8
#endif
      for (; i < n; ++i) {
        const float* state = states + shared.state[i] * stride;
        const float scale = shared.scale[i], scale_next = shared.scale_next[i];
        sum = Cta::Fma(sum, scale, Cta::Mul(shared.sum[i], scale_next));
        LONGSPEC_UNROLL
        for (int j = 0; j < kMost; ++j) {
          o[j] = Cta::Fma(o[j], scale, Cta::Mul(ValueOf(state, thread + j * kThreads, a), scale_next));
        }
      }
    }
    const float inverse = begin < end ? Cta::Div(1.0F, sum) : 0.0F;
    LONGSPEC_UNROLL
    for (int j = 0; j < kMost; ++j) {
      const int d = thread + j * kThreads;
      if (d < a.head_dim) out[d] = begin < end ? Cta::Mul(o[j], inverse) : 0.0F;
    }
  }

 private:
  static LONGSPEC_GPU float Larger(float a, float b) { return a < b ? b : a; }
  static LONGSPEC_GPU float ValueOf(const float* state, int d, const Args& a) {
    return d < a.head_dim ? state[kStateHeader + d] : 0.0F;
  }
};

}  // namespace longspec::kernels::gpu
