// SPDX-License-Identifier: Apache-2.0
//
// AdamW with decoupled weight decay and clipping of the global norm, and on request Muon for matrices; the
// state is tensors that a checkpoint can hold. Not thread-safe.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/optimiser_options.h"

namespace longspec::train {

class Optimiser {
 public:
  // `hidden` says of each parameter whether it is a matrix that Muon is for; empty: of none.
  Optimiser(std::vector<at::Tensor> parameters, const OptimiserOptions& options,
            std::vector<bool> hidden = {});

  // Applies the accumulated gradients and clears them. Returns their norm before clipping; if that is no
  // finite number, nothing is changed. `step` counts from 0.
  double Step(int64_t step, double learning_rate);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // What a checkpoint holds: means of the gradients and, but for Muon's, of their squares.
  const std::vector<std::pair<std::string, at::Tensor>>& state() const { return state_; }

 private:
  void AdamStep(size_t i, const at::Tensor& gradient, int64_t step, double learning_rate);
  void MuonStep(size_t i, const at::Tensor& gradient, double learning_rate);

  const std::vector<at::Tensor> parameters_;
  const OptimiserOptions options_;
  std::vector<at::Tensor> means_, squares_;  // squares undefined: Muon's
  std::vector<std::pair<std::string, at::Tensor>> state_;
};

// The orthogonal matrix nearest to `matrix`, roughly: five steps of Newton and Schulz that bring all singular
// values to between 0.7 and 1.2 (Jordan et al. 2024, whose products are in bf16).
at::Tensor Orthogonalise(const at::Tensor& matrix, at::ScalarType products = at::kFloat);

}  // namespace longspec::train
