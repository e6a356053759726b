// SPDX-License-Identifier: Apache-2.0
#include "train/parameters.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "train/bf16_product.h"

namespace longspec::train {

Parameters::Parameters(uint64_t seed, at::Device device, Precision precision)
    : generator_(at::detail::createCPUGenerator(seed)), device_(device), precision_(precision) {}

void Parameters::Matrix(const std::string& name, int64_t n_out, int64_t n_in, bool trained,
                        double deviation) {
  at::Tensor tensor = at::zeros({n_out, n_in}, at::kFloat);
  if (deviation > 0.0) tensor.normal_(0.0, deviation, generator_);
  tensors_.emplace_back(name + ".weight", tensor.to(device_).requires_grad_(trained));
}

void Parameters::Vector(const std::string& name, int64_t n, double value, bool trained) {
  tensors_.emplace_back(name, at::full({n}, value, at::kFloat).to(device_).requires_grad_(trained));
}

bool Parameters::Has(const std::string& name) const {
  return std::ranges::any_of(tensors_, [&](const auto& entry) { return entry.first == name; });
}

const at::Tensor& Parameters::Find(const std::string& name) const {
  const auto it = std::ranges::find(tensors_, name, [](const auto& entry) { return entry.first; });
  LS_CHECK(it != tensors_.end());
  return it->second;
}

std::vector<at::Tensor> Parameters::Trained() const {
  std::vector<at::Tensor> trained;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.requires_grad()) trained.push_back(tensor);
  }
  return trained;
}

std::vector<bool> Parameters::TrainedHidden() const {
  std::vector<bool> hidden;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.requires_grad()) hidden.push_back(tensor.dim() == 2 && name != "lm_head.weight");
  }
  return hidden;
}

double Parameters::TrainedMatrixElements() const {
  double elements = 0.0;
  for (const at::Tensor& tensor : Trained()) {
    if (tensor.dim() == 2) elements += static_cast<double>(tensor.numel());
  }
  return elements;
}

at::Tensor Parameters::Product(const std::string& name, const at::Tensor& x) const {
  const at::Tensor& weight = Find(name + ".weight");
  std::optional<at::Tensor> bias;
  if (Has(name + ".bias")) bias = Find(name + ".bias");
  if (precision_ == Precision::kF32) return at::linear(x, weight, bias);
  const at::Tensor y = Bf16Product(x, weight);
  return bias ? y + *bias : y;
}

}  // namespace longspec::train
