// SPDX-License-Identifier: Apache-2.0
//
// The named tensors of a draft, and products with them. Not thread-safe while tensors are added or trained.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/trainee_options.h"

namespace longspec::train {

class Parameters {
 public:
  // Random values depend on the seed and the order of Matrix calls alone.
  Parameters(uint64_t seed, at::Device device, Precision precision);

  // Adds NAME.weight (n_out, n_in), N(0, deviation).
  void Matrix(const std::string& name, int64_t n_out, int64_t n_in, bool trained = true,
              double deviation = 0.02);
  // Adds a tensor (n) of one value: a bias, or the weight of a norm.
  void Vector(const std::string& name, int64_t n, double value, bool trained = true);

  // All, in the order of their files.
  const std::vector<std::pair<std::string, at::Tensor>>& tensors() const { return tensors_; }
  Precision precision() const { return precision_; }
  bool Has(const std::string& name) const;
  const at::Tensor& Find(const std::string& name) const;  // REQUIRES: Has(name)
  std::vector<at::Tensor> Trained() const;
  std::vector<bool> TrainedHidden() const;  // of each of these: a matrix, and no head
  double TrainedMatrixElements() const;

  // (n, n_in) to (n, n_out): NAME.weight * x + NAME.bias, if there is one. f32 in and out.
  at::Tensor Product(const std::string& name, const at::Tensor& x) const;

 private:
  at::Generator generator_;
  const at::Device device_;
  const Precision precision_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

}  // namespace longspec::train
