// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/fiber_device.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace longspec::kernels::testing {

GpuFaults gpu_faults;

std::unique_ptr<std::byte[]> FiberDevice::NewBytes(size_t n) {
  return std::unique_ptr<std::byte[]>(new std::byte[n]);
}

FiberBlock& FiberDevice::Fibers() {
  static auto* fibers = new FiberBlock;  // never freed: its fibers wait for work for ever
  return *fibers;
}

uint32_t FiberDevice::NextSeed() {
  static uint32_t seed = 0;
  return ++seed;
}

std::vector<int> FiberDevice::Order(int n_blocks) {
  std::vector<int> order(static_cast<size_t>(n_blocks));
  std::iota(order.begin(), order.end(), 0);
  if (n_blocks > 1) std::shuffle(order.begin(), order.end(), std::minstd_rand(NextSeed()));
  return order;
}

}  // namespace longspec::kernels::testing
