// SPDX-License-Identifier: Apache-2.0
//
// Asking memory for what is read next, a few cache lines at a time, from loops that compute. Attention reads
// a chunk of keys, then of values, each once: without this, memory idles while a chunk is worked on.
// Everything lives in an unnamed namespace on purpose: files built for different instruction sets include
// this, and each gets its own copy.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

class Fetch {
 public:
  explicit Fetch(const Upcoming& next) : at_(next.begin), left_(next.bytes) {}

  // The next kLines lines, while there are any. Into the second-level cache: the first holds what is worked
  // on.
  template <int kLines>
  void Lines() {
    if (left_ == 0) return;
#pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i) __builtin_prefetch(at_ + kLineBytes * i, 0, 2);
    constexpr size_t kStep = size_t{kLines} * kLineBytes;
    at_ += kStep;
    left_ = left_ > kStep ? left_ - kStep : 0;
  }

 private:
  static constexpr int kLineBytes = 64;

  const std::byte* at_;
  size_t left_;
};

}  // namespace
}  // namespace longspec::kernels
