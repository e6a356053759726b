// SPDX-License-Identifier: Apache-2.0
//
// The states that a row's chunks have left, merged and divided by their sums: a block of threads for each row
// and head. Stretches of kStretchChunks are merged each in ascending order, then all of them. The running
// maxima are known before any sum, so only one fma for each chunk and dimension is done one after the other.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/exp.h"
#include "kernels/gpu/fused_attention.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// kDims: at least head_dim.
template <int kDims>
struct MergeStates {
  struct Args {
    const AttentionRow* rows;  // what they see: all chunks from that of `begin` on have left a state
    const float* states;       // (n_kv_head, n_states, group, kStateHeader + head_dim)
    const int* parts;          // states of a row's chunks, ascending; those of row r are
    const int* part_begins;    // [part_begins[r], part_begins[r + 1])
    const int* out_rows;       // (n_rows) where a row's result goes; null: to its own place
    float* out;                // (n_rows, n_kv_head * group, head_dim)
    int n_rows, n_states, n_kv_head, group, head_dim;
    bool operator==(const Args&) const = default;
  };
  // Chunks at a time: whole stretches, but for those that the row's first and last chunk are in.
  static constexpr int kThreads = 128, kStretches = 8, kPiece = kStretches * kStretchChunks;
  static_assert(kPiece <= kThreads);

  // What a state is multiplied with, and the next one that is added to it.
  struct Scales {
    float state, next;
  };
  struct Shared {
    float largest[kPiece], sum[kPiece];  // of chunks
    int state[kPiece];
    Scales of_chunk[kPiece];
    float stretch_largest[kStretches];
    Scales of_stretch[kStretches];
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
    float o[kMost] = {}, sum = 0.0F;                          // of the stretches before
    int n = 0;
    for (int first = begin; first < end; first += n) {
      // Of chunks, counted from the beginning of a stretch: the first of the piece, and the one after it.
      const int from = (a.rows[row].begin / kChunk + first - begin) % kPiece;
      n = end - first < kPiece - from ? end - first : kPiece - from;
      if (first > begin) cta.Sync();  // the piece before has been read
      if (thread < n) {
        shared.state[thread] = a.parts[first + thread];
        const float* state = states + shared.state[thread] * stride;
        shared.largest[thread] = state[0];
        shared.sum[thread] = state[1];
      }
      cta.Sync();
      if (thread < n) SetScales<Cta>(from, n, thread, shared);
      cta.Sync();
      const int stretch_begin = from / kStretchChunks, stretch_end = (from + n - 1) / kStretchChunks + 1;
      float before = first == begin ? shared.stretch_largest[stretch_begin] : shared.last;
      for (int i = stretch_begin; i < thread && i < stretch_end; ++i)
        before = Larger(before, shared.stretch_largest[i]);
      cta.Sync();
      if (thread >= stretch_begin && thread < stretch_end) {
        const float next = shared.stretch_largest[thread], m = Larger(before, next);
        shared.of_stretch[thread] = ScalesOf<Cta>(before, next);
        if (thread == stretch_end - 1) shared.last = m;
      }
      cta.Sync();
      for (int i = 0; i < n;) {
        const int stretch = (from + i) / kStretchChunks, left = (stretch + 1) * kStretchChunks - from;
        const int stop = n < left ? n : left;
        const bool alone = first == begin && i == 0;
        // The first state is taken as it is.
        float part[kMost], part_sum = shared.sum[i];
        LONGSPEC_UNROLL
        for (int j = 0; j < kMost; ++j)
          part[j] = ValueOf(states + shared.state[i] * stride, thread + j * kThreads, a);
#ifdef __CUDACC__
#pragma unroll 8
#endif
        for (++i; i < stop; ++i) {
          const float* state = states + shared.state[i] * stride;
          const Scales scales = shared.of_chunk[i];
          part_sum = Cta::Fma(part_sum, scales.state, Cta::Mul(shared.sum[i], scales.next));
          LONGSPEC_UNROLL
          for (int j = 0; j < kMost; ++j) {
            part[j] = Cta::Fma(part[j], scales.state,
                               Cta::Mul(ValueOf(state, thread + j * kThreads, a), scales.next));
          }
        }
        const Scales scales = shared.of_stretch[stretch];
        sum = alone ? part_sum : Cta::Fma(sum, scales.state, Cta::Mul(part_sum, scales.next));
        LONGSPEC_UNROLL
        for (int j = 0; j < kMost; ++j)
          o[j] = alone ? part[j] : Cta::Fma(o[j], scales.state, Cta::Mul(part[j], scales.next));
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
  template <class Cta>
  static LONGSPEC_GPU Scales ScalesOf(float before, float next) {
    const float m = Larger(before, next);
    return {ExpOf<Cta>(Cta::Sub(before, m)), ExpOf<Cta>(Cta::Sub(next, m))};
  }
  // Of chunk `chunk` of the piece, which begins with chunk `from` of a stretch and has n of them.
  template <class Cta>
  static LONGSPEC_GPU void SetScales(int from, int n, int chunk, Shared& shared) {
    const int in_stretch = (from + chunk) % kStretchChunks;
    const float next = shared.largest[chunk];
    float before = shared.largest[in_stretch < chunk ? chunk - in_stretch : 0];
    for (int i = in_stretch < chunk ? chunk - in_stretch : 0; i < chunk; ++i)
      before = Larger(before, shared.largest[i]);
    shared.of_chunk[chunk] = ScalesOf<Cta>(before, next);
    if (in_stretch == kStretchChunks - 1 || chunk == n - 1)
      shared.stretch_largest[(from + chunk) / kStretchChunks] = Larger(before, next);
  }
  static LONGSPEC_GPU float ValueOf(const float* state, int d, const Args& a) {
    return d < a.head_dim ? state[kStateHeader + d] : 0.0F;
  }
};

}  // namespace longspec::kernels::gpu
