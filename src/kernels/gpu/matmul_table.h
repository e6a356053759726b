// SPDX-License-Identifier: Apache-2.0
//
// Which body multiplies how many rows, and the matrix products of kernels/gpu/table.h.
#pragma once

#include "kernels/gpu/few_rows.h"
#include "kernels/gpu/float_rows.h"
#include "kernels/gpu/many_rows.h"
#include "kernels/gpu/streamed_rows.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// Which body: all have the same bits.
enum class ProductBody : uint8_t { kBest, kFewRows, kStreamedRows, kMoreRows, kManyRows, kManyRowsSmall };

// A body for many rows reads weights once for 32 or 64 of them, but has few blocks of threads: with fewer
// than a card has multiprocessors, smaller ones are faster.
template <class Units>
ProductBody BestBody(const QuantizedProduct<typename Units::Activations>& a) {
  constexpr int kFewestBlocks = 100;
  if (a.n_rows <= 8) return ProductBody::kStreamedRows;
  if (a.n_rows <= 16) return ProductBody::kMoreRows;
  const auto blocks = [](const Grid& grid) { return grid.width * grid.height; };
  if (blocks(ManyRows<Units, 64>::GridOf(a)) >= kFewestBlocks) return ProductBody::kManyRows;
  if (blocks(ManyRows<Units, 32>::GridOf(a)) >= kFewestBlocks) return ProductBody::kManyRowsSmall;
  return ProductBody::kMoreRows;
}

template <class Units, typename Launcher>
void LaunchProduct(const QuantizedProduct<typename Units::Activations>& a, const Launcher& launch,
                   ProductBody body = ProductBody::kBest) {
  if (a.n_groups == 0 || a.n_rows == 0) return;
  switch (body == ProductBody::kBest ? BestBody<Units>(a) : body) {
    case ProductBody::kManyRows:
      return launch(ManyRows<Units, 64>(), a);
    case ProductBody::kManyRowsSmall:
      return launch(ManyRows<Units, 32>(), a);
    case ProductBody::kMoreRows:
      return launch(FewRows<Units, 2>(), a);
    case ProductBody::kStreamedRows:  // at most 8
      return a.n_rows <= 2 ? launch(StreamedRows<Units, 2>(), a) : launch(StreamedRows<Units, 8>(), a);
    default:
      return launch(FewRows<Units, 1>(), a);
  }
}

template <typename Device>
struct LaunchOn {
  template <typename Body>
  void operator()(Body, const typename Body::Args& args) const {
    Device::template Launch<Body>(args);
  }
};

// From a row of `n` floats with a stride, all that lies between the first and the last of n_rows.
constexpr size_t Span(int n_rows, int64_t stride, int64_t n) {
  return n_rows == 0 ? 0 : static_cast<size_t>((n_rows - 1) * stride + n);
}

template <typename Device, ProductBody kBody>
struct MatmulsOf {
  // `args.x` is (n_rows, n_units).
  template <class Units, typename Args>
  static void Quantized(const Args& args) {
    const PackedMatrix& w = *args.w;
    const int n_groups = args.group_end - args.group_begin;
    const int64_t first_out = int64_t{args.group_begin} * kRowGroup;
    if (n_groups <= 0 || args.n_rows == 0) return;
    const int64_t n_out = w.n_out - first_out;  // to the last of the matrix
    const auto n_units = static_cast<int>(w.n_in / Units::kValues);
    const typename Device::template In<std::byte> weights(
        w.data + static_cast<size_t>(args.group_begin) * w.group_bytes,
        static_cast<size_t>(n_groups) * w.group_bytes);
    using Activations = typename Units::Activations;
    const typename Device::template In<Activations> x(args.x, static_cast<size_t>(args.n_rows) * n_units);
    const int64_t n_written = n_out < int64_t{n_groups} * kRowGroup ? n_out : int64_t{n_groups} * kRowGroup;
    const typename Device::template InOut<float> y(args.y + first_out,
                                                   Span(args.n_rows, args.y_stride, n_written));
    LaunchProduct<Units>({.w = weights.get(),
                          .group_bytes = w.group_bytes,
                          .n_out = n_written,
                          .n_groups = n_groups,
                          .n_units = n_units,
                          .x = x.get(),
                          .y = y.get(),
                          .y_stride = args.y_stride,
                          .n_rows = args.n_rows,
                          .add = args.add},
                         LaunchOn<Device>(), kBody);
  }

  template <class Body>
  static void Floats(const MatmulFloatArgs& args) {
    const PackedMatrix& w = *args.w;
    const int64_t first_out = int64_t{args.group_begin} * kRowGroup;
    const int n_groups = args.group_end - args.group_begin;
    if (n_groups <= 0 || args.n_rows == 0) return;
    const int64_t n_left = w.n_out - first_out, n_asked = int64_t{n_groups} * kRowGroup;
    const int64_t n_out = n_left < n_asked ? n_left : n_asked;
    const typename Device::template In<std::byte> weights(
        w.data + static_cast<size_t>(args.group_begin) * w.group_bytes,
        static_cast<size_t>(n_groups) * w.group_bytes);
    const typename Device::template In<float> x(args.x, Span(args.n_rows, args.x_stride, w.n_in));
    const typename Device::template InOut<float> y(args.y + first_out,
                                                   Span(args.n_rows, args.y_stride, n_out));
    Device::template Launch<Body>({.w = weights.get(),
                                   .group_bytes = w.group_bytes,
                                   .n_in = w.n_in,
                                   .n_out = n_out,
                                   .x = x.get(),
                                   .x_stride = args.x_stride,
                                   .y = y.get(),
                                   .y_stride = args.y_stride,
                                   .n_rows = args.n_rows,
                                   .add = args.add});
  }

  static void Float(const MatmulFloatArgs& args) {
    WithFloatFormat(args.w->format, [&](auto f) { Floats<FloatRows<decltype(f)::kValue>>(args); });
  }
  static void Q8(const MatmulQ8Args& args) {
    WithQ8Format(args.w->format, [&](auto f) { Quantized<UnitsQ8<decltype(f)::kValue>>(args); });
  }
  static void Q8K(const MatmulQ8KArgs& args) {
    WithSuperFormat(args.w->format, [&](auto f) { Quantized<UnitsQ8K<decltype(f)::kValue>>(args); });
  }
};

template <typename Device, ProductBody kBody = ProductBody::kBest>
void SetMatmuls(KernelTable& table) {
  table.matmul_q8 = MatmulsOf<Device, kBody>::Q8;
  table.matmul_q8k = MatmulsOf<Device, kBody>::Q8K;
  table.matmul_float = MatmulsOf<Device, kBody>::Float;
}

}  // namespace longspec::kernels::gpu
