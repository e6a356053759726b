// SPDX-License-Identifier: Apache-2.0
#include <deque>

#include "cuda/graph_time.h"
#include "cuda/product_times.h"
#include "cuda/random_weights.h"
#include "kernels/gpu/matmul_table.h"

namespace longspec::cuda {
namespace {

using kernels::Q8KBlock;
using kernels::WeightFormat;
using kernels::gpu::ProductBody;

constexpr int kReplays = 5, kMostRows = 64;
constexpr size_t kRotated = size_t{400} << 20;  // of weights, so that none is in a cache from the last time

struct Shape {
  int64_t n_in, n_out;
};
// Queries, keys and values; results of attention; gates; down projections: of 1.5B and 8B models.
constexpr Shape kProducts[] = {{1536, 2048}, {1536, 1536}, {1536, 17920}, {8960, 1536},
                               {4096, 6144}, {4096, 4096}, {4096, 28672}, {14336, 4096}};
constexpr ProductBody kBodies[] = {ProductBody::kFewRows, ProductBody::kStreamedRows, ProductBody::kMoreRows,
                                   ProductBody::kManyRowsSmall, ProductBody::kManyRows};
constexpr const char* kBodyNames[] = {"few", "streamed", "more", "many32", "many64"};

struct LaunchInto {
  cudaStream_t stream;
  template <typename Body>
  void operator()(Body, const typename Body::Args& args) const {
    Launch<Body>(args, stream);
  }
};

bool Fits(ProductBody body, int rows) {
  if (body == ProductBody::kStreamedRows) return rows <= 8;
  if (body == ProductBody::kFewRows) return rows <= 16;
  return rows >= 8 && (rows > 16 || body == ProductBody::kMoreRows);
}

template <WeightFormat F>
void PrintShape(std::FILE* to, const Shape& shape, cudaStream_t stream, const Q8KBlock* x, float* y) {
  DeviceMatrix m{.n_out = shape.n_out, .n_in = shape.n_in, .format = F};
  m.group_bytes = SuperGroupBytes(F, shape.n_in);
  const auto n = static_cast<int>(kRotated / m.bytes() + 1);
  const DeviceBytes weights(m.bytes() * static_cast<size_t>(n));
  for (int i = 0; i < n; ++i)
    FillRandomly(m, weights.get() + m.bytes() * static_cast<size_t>(i), static_cast<uint32_t>(i), stream);
  for (const int rows : {1, 2, 4, 8, 16, 64}) {
    std::fprintf(to, "%6lld x %6lld %s %2d rows:", static_cast<long long>(shape.n_in),
                 static_cast<long long>(shape.n_out), F == WeightFormat::kSuperU4Min ? "Q4_K" : "Q6_K", rows);
    for (size_t b = 0; b < std::size(kBodies); ++b) {
      if (!Fits(kBodies[b], rows)) continue;
      const double us = 1e3 / n * GraphTime(stream, kReplays, [&] {
                          for (int i = 0; i < n; ++i) {
                            kernels::gpu::LaunchProduct<kernels::gpu::UnitsQ8K<F>>(
                                {.w = weights.get() + m.bytes() * static_cast<size_t>(i),
                                 .group_bytes = m.group_bytes,
                                 .n_out = m.n_out,
                                 .n_groups = m.n_groups(),
                                 .n_units = static_cast<int>(m.n_in / kernels::kSuperBlock),
                                 .x = x,
                                 .y = y,
                                 .y_stride = m.n_out,
                                 .n_rows = rows,
                                 .add = false},
                                LaunchInto{stream}, kBodies[b]);
                          }
                        });
      std::fprintf(to, "  %s %.2f us %.2f TB/s", kBodyNames[b], us,
                   static_cast<double>(m.bytes()) / us * 1e-6);
    }
    std::fprintf(to, "\n");
  }
}

}  // namespace

void PrintProductTimes(std::FILE* to) {
  cudaStream_t stream;
  MustSucceed(cudaStreamCreate(&stream), "stream");
  constexpr size_t kMostBlocks = size_t{kMostRows} * 14336 / kernels::kSuperBlock;
  const DeviceBytes x(kMostBlocks * sizeof(Q8KBlock)), y(size_t{kMostRows} * 28672 * 4);
  FillSmallBytes(x.get(), x.size(), 1, stream);
  for (const Shape& shape : kProducts) {
    PrintShape<WeightFormat::kSuperU4Min>(to, shape, stream, reinterpret_cast<const Q8KBlock*>(x.get()),
                                          reinterpret_cast<float*>(y.get()));
    PrintShape<WeightFormat::kSuperU6Halves>(to, shape, stream, reinterpret_cast<const Q8KBlock*>(x.get()),
                                             reinterpret_cast<float*>(y.get()));
  }
  MustSucceed(cudaStreamSynchronize(stream), "products");
  cudaStreamDestroy(stream);
}

}  // namespace longspec::cuda
