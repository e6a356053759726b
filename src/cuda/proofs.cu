// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/proofs.h"
#include "cuda/runtime.h"
#include "kernels/gpu/each.h"
#include "kernels/gpu/exp.h"
#include "kernels/gpu/round.h"
#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace longspec::cuda {
namespace {

namespace gpu = kernels::gpu;

// The half with these bits.
struct WidenHalf {
  using Result = float;
  template <class Cta>
  LONGSPEC_GPU float At(int bits) const {
    return Cta::Half(static_cast<uint16_t>(bits));
  }
};

// exp of the floats with these bits.
struct ExpOfBits {
  using Result = float;
  uint32_t first, step;
  template <class Cta>
  LONGSPEC_GPU float At(int i) const {
    return gpu::ExpOf<Cta>(Cta::Bits(first + static_cast<uint32_t>(i) * step));
  }
};

void Count(uint32_t bits, bool same, Comparison* all) {
  ++all->compared;
  if (same) return;
  if (all->different++ == 0) all->first_different = bits;
}

}  // namespace

Comparison CompareHalves() {
  const DeviceBytes wide(65536 * 4), again(65536 * 2);
  auto* numbers = reinterpret_cast<float*>(wide.get());
  Launch<gpu::Each<WidenHalf>>({.of = {}, .out = numbers, .n = 65536}, nullptr);
  Launch<gpu::Each<gpu::RoundHalf>>(
      {.of = {.x = numbers}, .out = reinterpret_cast<uint16_t*>(again.get()), .n = 65536}, nullptr);
  std::vector<float> floats(65536);
  std::vector<uint16_t> halves(65536);
  MustSucceed(cudaMemcpy(floats.data(), wide.get(), wide.size(), cudaMemcpyDeviceToHost), "halves");
  MustSucceed(cudaMemcpy(halves.data(), again.get(), again.size(), cudaMemcpyDeviceToHost), "halves");
  Comparison all;
  for (uint32_t i = 0; i < 65536; ++i) {
    const float expected = HalfToFloat(static_cast<uint16_t>(i));
    const bool same =
        std::isnan(expected)
            ? std::isnan(floats[i])
            : std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(floats[i]) && halves[i] == i;
    Count(i, same, &all);
  }
  return all;
}

Comparison CompareExp(uint32_t step, int n_threads) {
  constexpr uint64_t kPiece = 1 << 24;
  const DeviceBytes out(kPiece * 4);
  std::vector<float> floats(kPiece);
  Comparison all;
  std::mutex mutex;
  const uint64_t n_all = ((uint64_t{1} << 32) + step - 1) / step;
  for (uint64_t begin = 0; begin < n_all; begin += kPiece) {
    const uint64_t n = std::min(kPiece, n_all - begin);
    const auto first = static_cast<uint32_t>(begin * step);
    Launch<gpu::Each<ExpOfBits>>({.of = {.first = first, .step = step},
                                  .out = reinterpret_cast<float*>(out.get()),
                                  .n = static_cast<int>(n)},
                                 nullptr);
    MustSucceed(cudaMemcpy(floats.data(), out.get(), n * 4, cudaMemcpyDeviceToHost), "exp");
    std::vector<std::thread> threads;
    for (int t = 0; t < n_threads; ++t) {
      threads.emplace_back([&, t] {
        Comparison own;
        for (uint64_t i = n * static_cast<uint64_t>(t) / n_threads;
             i < n * static_cast<uint64_t>(t + 1) / n_threads; ++i) {
          const uint32_t bits = first + static_cast<uint32_t>(i) * step;
          const float expected = kernels::reference::ExpOf(std::bit_cast<float>(bits));
          Count(bits,
                std::isnan(expected)
                    ? std::isnan(floats[i])
                    : std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(floats[i]),
                &own);
        }
        const std::lock_guard lock(mutex);
        if (all.different == 0) all.first_different = own.first_different;
        all.compared += own.compared;
        all.different += own.different;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return all;
}

}  // namespace longspec::cuda
