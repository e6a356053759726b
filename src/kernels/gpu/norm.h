// SPDX-License-Identifier: Apache-2.0
//
// Root mean square norms: a block of threads for each row, which brings the row to shared memory, and of it
// 16 threads, one for each stripe.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/gpu/quantize.h"

namespace longspec::kernels::gpu {

struct NormRows {
  const float* x;
  int64_t stride;
  const float* w;
  int n, n_rows;
  float eps;
  bool operator==(const NormRows&) const = default;
};

// Of one row, in the block's shared memory.
class NormShared {
 public:
  static constexpr int kStripes = 16;
  static constexpr int kPiece = 4096;  // values at a time
  static constexpr size_t Bytes(int n) { return sizeof(float) * (4 + (n < kPiece ? n : kPiece)); }

  template <class Cta>
  static LONGSPEC_GPU NormShared Of(const Cta& cta) {
    return NormShared(reinterpret_cast<float*>(cta.Shared()));
  }

  // 1 / sqrt(mean of squares + eps)
  template <class Cta>
  LONGSPEC_GPU float Scale(const Cta& cta, const float* x, int n, float eps) const {
    float* piece = shared_ + 4;
    const int thread = cta.thread();
    float stripe = 0.0F;
    for (int first = 0; first < n; first += kPiece) {
      const int length = n - first < kPiece ? n - first : kPiece;
      if (first > 0) cta.Sync();
      for (int i = thread; i < length; i += cta.n_threads()) piece[i] = x[first + i];
      cta.Sync();
      if (thread >= kStripes) continue;
#ifdef __CUDACC__
#pragma unroll 16
#endif
      for (int i = thread; i < length; i += kStripes) stripe = Cta::Fma(piece[i], piece[i], stripe);
    }
    if (thread < kWarp) {
      LONGSPEC_UNROLL
      for (int width = kStripes / 2; width >= 1; width /= 2) {
        stripe = Cta::Add(stripe, cta.ShuffleXor(stripe, width));
      }
      if (thread == 0) {
        const float mean = Cta::Div(stripe, static_cast<float>(n));
        shared_[0] = Cta::Div(1.0F, Cta::Sqrt(Cta::Add(mean, eps)));
      }
    }
    cta.Sync();
    return shared_[0];
  }

 private:
  explicit LONGSPEC_GPU NormShared(float* shared) : shared_(shared) {}

  float* shared_;  // the scale, then a piece of the row
};

struct RmsNorm {
  struct Args {
    NormRows rows;
    float* y;
    int64_t y_stride;
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 128;
  static Grid GridOf(const Args& a) {
    return {.width = a.rows.n_rows, .shared_bytes = NormShared::Bytes(a.rows.n)};
  }
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const float* x = a.rows.x + cta.block() * a.rows.stride;
    float* y = a.y + cta.block() * a.y_stride;
    const float r = NormShared::Of(cta).Scale(cta, x, a.rows.n, a.rows.eps);
    for (int i = cta.thread(); i < a.rows.n; i += kThreads) y[i] = Cta::Mul(Cta::Mul(x[i], r), a.rows.w[i]);
  }
};

// Normed and quantised: what a matrix product reads. Rows and w begin at multiples of 16 bytes.
template <class To>
struct QuantizeNorm {
  struct Args {
    NormRows rows;
    typename To::Block* out;  // (n_rows, n / To::kBlock)
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 256;
  static Grid GridOf(const Args& a) {
    return {.width = a.rows.n_rows, .shared_bytes = NormShared::Bytes(a.rows.n)};
  }
  struct Source {
    const float* x;
    const float* w;
    float r;

    template <class Cta>
    LONGSPEC_GPU void Read(int, int at, float* to) const {
      float of_x[4], of_w[4];
      Read4<Cta>(x + at, of_x);
      Read4<Cta>(w + at, of_w);
      LONGSPEC_UNROLL
      for (int i = 0; i < 4; ++i) to[i] = Cta::Mul(Cta::Mul(of_x[i], r), of_w[i]);
    }
  };
  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int row = cta.block();
    const float* x = a.rows.x + row * a.rows.stride;
    const float r = NormShared::Of(cta).Scale(cta, x, a.rows.n, a.rows.eps);
    QuantizeRow<To>(cta, Source{x, a.rows.w, r}, row, a.rows.n, cta.thread(), kThreads,
                    a.out + int64_t{row} * (a.rows.n / To::kBlock));
  }
};

}  // namespace longspec::kernels::gpu
