// SPDX-License-Identifier: Apache-2.0
//
// Products of weights that are floats, in arithmetic "f32": a thread for an output and 8 rows, k ascending.
#pragma once

#include "kernels/cpu/weight_traits.h"
#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

template <WeightFormat F>
struct FloatRows {
  struct Args {
    const std::byte* w;  // of the first group
    size_t group_bytes;
    int64_t n_in, n_out;  // outputs from there on
    const float* x;       // (n_rows, n_in), rows x_stride apart
    int64_t x_stride;
    float* y;  // of the first group's outputs
    int64_t y_stride;
    int n_rows;
    bool add;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128, kRows = 8;

  static Grid GridOf(const Args& a) {
    return {.width = CeilDiv(a.n_out, kThreads), .height = CeilDiv(a.n_rows, kRows)};
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int64_t out = static_cast<int64_t>(cta.block()) * kThreads + cta.thread();
    if (out >= a.n_out) return;
    const std::byte* w = a.w + static_cast<size_t>(out / kRowGroup) * a.group_bytes;
    const int row0 = cta.block_y() * kRows;
    const float* x[kRows];
    LONGSPEC_UNROLL
    for (int r = 0; r < kRows; ++r) x[r] = a.x + (row0 + r < a.n_rows ? row0 + r : a.n_rows - 1) * a.x_stride;
    float acc[kRows] = {};
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (int64_t k = 0; k < a.n_in; ++k) {
      const float weight = WeightAt<Cta>(w, k * kRowGroup + out % kRowGroup);
      LONGSPEC_UNROLL
      for (int r = 0; r < kRows; ++r) acc[r] = Cta::Fma(weight, x[r][k], acc[r]);
    }
    LONGSPEC_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (row0 + r >= a.n_rows) continue;
      float& y = a.y[(row0 + r) * a.y_stride + out];
      y = a.add ? Cta::Add(y, acc[r]) : acc[r];
    }
  }

 private:
  template <class Cta>
  static LONGSPEC_GPU float WeightAt(const std::byte* w, int64_t index) {
    if constexpr (F == WeightFormat::kF32) {
      return reinterpret_cast<const float*>(w)[index];
    } else {
      const uint16_t bits = reinterpret_cast<const uint16_t*>(w)[index];
      return F == WeightFormat::kF16 ? Cta::Half(bits) : Cta::Bits(static_cast<uint32_t>(bits) << 16);
    }
  }
};

}  // namespace longspec::kernels::gpu
