// SPDX-License-Identifier: Apache-2.0
//
// Products in bf16 of as many rows as there happen to be. Each shape costs LibTorch's library a program of
// its own, so rows are filled up with zeros: a few shapes serve all lengths. Free functions, from any thread.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace longspec::train {

inline constexpr int64_t kRowStep = 64;
// n, rounded up.
inline int64_t FullRows(int64_t n) { return (n + kRowStep - 1) / kRowStep * kRowStep; }

// Whether what is done to rows of bf16 on this device has loops of its own (row_kernels.h).
bool HasBf16Rows(at::Device device);

// x (n, width) as bf16, (FullRows(n), width).
at::Tensor FilledUp(const at::Tensor& x);

// x (n, n_in) times weight (n_out, n_in), (n, n_out): f32 to f32, differentiable in both.
at::Tensor Bf16Product(const at::Tensor& x, const at::Tensor& weight);

}  // namespace longspec::train
