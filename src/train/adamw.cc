// SPDX-License-Identifier: Apache-2.0
#include "train/adamw.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>

namespace longspec::train {

AdamW::AdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  for (const at::Tensor& p : parameters_) {
    means_.push_back(at::zeros_like(p).detach());
    squares_.push_back(at::zeros_like(p).detach());
  }
}

double AdamW::Step(int64_t step, double learning_rate) {
  const at::NoGradGuard no_grad;
  double sum = 0.0;
  for (const at::Tensor& p : parameters_) {
    if (p.grad().defined()) sum += p.grad().square().sum(at::kDouble).item<double>();
  }
  const double norm = std::sqrt(sum);
  const double clip = options_.max_norm > 0.0 && norm > options_.max_norm ? options_.max_norm / norm : 1.0;
  const auto t = static_cast<double>(step + 1);
  const double mean_scale = 1.0 / (1.0 - std::pow(options_.beta1, t));
  const double square_scale = 1.0 / (1.0 - std::pow(options_.beta2, t));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor p = parameters_[i];
    if (!p.grad().defined()) continue;
    if (std::isfinite(norm)) {
      const at::Tensor g = p.grad() * clip;
      means_[i].mul_(options_.beta1).add_(g, 1.0 - options_.beta1);
      squares_[i].mul_(options_.beta2).addcmul_(g, g, 1.0 - options_.beta2);
      p.mul_(1.0 - learning_rate * options_.weight_decay);
      const at::Tensor root = (squares_[i] * square_scale).sqrt_().add_(options_.epsilon);
      p.addcdiv_(means_[i], root, -learning_rate * mean_scale);
    }
    p.mutable_grad().reset();
  }
  return norm;
}

}  // namespace longspec::train
