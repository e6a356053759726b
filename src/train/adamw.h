// SPDX-License-Identifier: Apache-2.0
//
// AdamW with decoupled weight decay and clipping of the global norm; its state is tensors that a checkpoint
// can hold. Not thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "train/adamw_options.h"

namespace longspec::train {

class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options);

  // Applies the accumulated gradients and clears them. Returns their norm before clipping; if that is no
  // finite number, nothing is changed. `step` counts from 0.
  double Step(int64_t step, double learning_rate);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // Per parameter: means of the gradients and of their squares.
  const std::vector<at::Tensor>& means() const { return means_; }
  const std::vector<at::Tensor>& squares() const { return squares_; }

 private:
  const std::vector<at::Tensor> parameters_;
  const AdamWOptions options_;
  std::vector<at::Tensor> means_, squares_;
};

}  // namespace longspec::train
