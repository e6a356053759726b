// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic "bf16" (ops.h) for instruction sets whose only products are f32 ones: the f32 kernels run with
// the two of a pair exchanged, over rows that were rounded to bf16 before, in a mode that flushes denormals.
// Everything lives in an unnamed namespace on purpose: files built for different instruction sets include
// this, and each gets its own copy.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/kv_traits.h"
#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

// While one lives, SSE and AVX arithmetic reads and writes denormals as zeros, as VDPBF16PS does. Compilers
// do not know that arithmetic depends on it: what is to be done in this mode must be behind a call that is
// not inlined.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  unsigned saved_;
};

inline constexpr int kPairsRows = 8;  // rows rounded at a time

// round(x, n, out) rounds n numbers, a multiple of 16; sum(args) computes unscaled scores in f32 arithmetic,
// is not inlined, and scale(out, n, by) multiplies n numbers, a multiple of 16, in place.
template <typename Round, typename Sum, typename Scale>
void ScoresInPairs(const ScoresArgs& a, const Round& round, const Sum& sum, const Scale& scale) {
  float q[kPairsRows * kMaxHeadDim];
  const int keys = a.block_begin * kKeyGroup, n_keys = (a.block_end - a.block_begin) * kKeyGroup;
  for (int row = 0; row < a.n_rows; row += kPairsRows) {
    ScoresArgs part = a;
    part.n_rows = a.n_rows - row < kPairsRows ? a.n_rows - row : kPairsRows;
    round(a.q + int64_t{row} * a.head_dim, part.n_rows * a.head_dim, q);
    part.q = q;
    part.out = a.out + row * a.out_stride;
    part.scale = 1.0F;
    if (row > 0) part.next = {};
    {
      const FlushDenormals flush;
      sum(part);
    }
    for (int r = 0; r < part.n_rows; ++r) scale(part.out + r * a.out_stride + keys, n_keys, a.scale);
  }
}

// Where ValuesArgs and GatheredValuesArgs differ.
[[maybe_unused]] inline int KeysOfRow(const ValuesArgs& a, int row) { return a.n_keys[row]; }
[[maybe_unused]] inline int KeysOfRow(const GatheredValuesArgs& a, int) { return a.n_keys; }
[[maybe_unused]] inline void SkipRows(ValuesArgs& a, int rows) {
  a.n_keys += rows;
  if (rows > 0) a.next = {};
}
[[maybe_unused]] inline void SkipRows(GatheredValuesArgs&, int) {}

// round as above, but of any number; sum(args) adds values in f32 arithmetic and is not inlined.
template <typename Args, typename Round, typename Sum>
void ValuesInPairs(const Args& a, const Round& round, const Sum& sum) {
  float p[kPairsRows * kChunk];
  for (int row = 0; row < a.n_rows; row += kPairsRows) {
    Args part = a;
    part.n_rows = a.n_rows - row < kPairsRows ? a.n_rows - row : kPairsRows;
    SkipRows(part, row);
    for (int r = 0; r < part.n_rows; ++r) {
      round(a.p + (row + r) * a.p_stride, KeysOfRow(part, r), p + r * kChunk);
    }
    part.p = p;
    part.p_stride = kChunk;
    part.o = a.o + row * a.o_stride;
    const FlushDenormals flush;
    sum(part);
  }
}

}  // namespace
}  // namespace longspec::kernels
