// SPDX-License-Identifier: Apache-2.0
#include "train/optimiser.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

namespace longspec::train {
namespace {

constexpr double kMuonMomentum = 0.95;
// Steps as large as AdamW's usually are, so that one learning rate serves both (Liu et al. 2025).
constexpr double kMuonScale = 0.2;

// x * x^T. It is its own mirror image, so on a CPU a strip of rows is computed from its own columns on.
at::Tensor WithItself(const at::Tensor& x) {
  constexpr int64_t kStrip = 192;
  const int64_t n = x.size(0);
  if (n <= kStrip || !x.device().is_cpu()) return at::matmul(x, x.t());
  at::Tensor square = at::empty({n, n}, x.options());
  for (int64_t begin = 0; begin < n; begin += kStrip) {
    const int64_t end = std::min(n, begin + kStrip);
    const at::Tensor strip = at::matmul(x.slice(0, begin, end), x.slice(0, begin, n).t());
    square.slice(0, begin, end).slice(1, begin, n).copy_(strip);
    square.slice(0, end, n).slice(1, begin, end).copy_(strip.slice(1, end - begin).t());
  }
  return square;
}

}  // namespace

Optimiser::Optimiser(std::vector<at::Tensor> parameters, const OptimiserOptions& options,
                     std::vector<bool> hidden)
    : parameters_(std::move(parameters)), options_(options) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const bool muon = options.muon && i < hidden.size() && hidden[i];
    means_.push_back(at::zeros_like(parameters_[i]).detach());
    squares_.push_back(muon ? at::Tensor() : at::zeros_like(parameters_[i]).detach());
    state_.emplace_back((muon ? "muon.momentum." : "adam.mean.") + std::to_string(i), means_[i]);
    if (!muon) state_.emplace_back("adam.square." + std::to_string(i), squares_[i]);
  }
}

double Optimiser::Step(int64_t step, double learning_rate) {
  const at::NoGradGuard no_grad;
  double sum = 0.0;
  for (const at::Tensor& p : parameters_) {
    if (p.grad().defined()) sum += p.grad().square().sum(at::kDouble).item<double>();
  }
  const double norm = std::sqrt(sum);
  const double clip = options_.max_norm > 0.0 && norm > options_.max_norm ? options_.max_norm / norm : 1.0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor p = parameters_[i];
    if (!p.grad().defined()) continue;
    if (std::isfinite(norm)) {
      const at::Tensor gradient = p.grad() * clip;
      p.mul_(1.0 - learning_rate * options_.weight_decay);
      if (squares_[i].defined()) {
        AdamStep(i, gradient, step, learning_rate);
      } else {
        MuonStep(i, gradient, learning_rate);
      }
    }
    p.mutable_grad().reset();
  }
  return norm;
}

void Optimiser::AdamStep(size_t i, const at::Tensor& g, int64_t step, double learning_rate) {
  const auto t = static_cast<double>(step + 1);
  const double mean_scale = 1.0 / (1.0 - std::pow(options_.beta1, t));
  const double square_scale = 1.0 / (1.0 - std::pow(options_.beta2, t));
  means_[i].mul_(options_.beta1).add_(g, 1.0 - options_.beta1);
  squares_[i].mul_(options_.beta2).addcmul_(g, g, 1.0 - options_.beta2);
  const at::Tensor root = (squares_[i] * square_scale).sqrt_().add_(options_.epsilon);
  at::Tensor p = parameters_[i];
  p.addcdiv_(means_[i], root, -learning_rate * mean_scale);
}

void Optimiser::MuonStep(size_t i, const at::Tensor& g, double learning_rate) {
  means_[i].mul_(kMuonMomentum).add_(g);
  at::Tensor p = parameters_[i];
  const auto longest = static_cast<double>(std::max(p.size(0), p.size(1)));
  p.add_(Orthogonalise(g + kMuonMomentum * means_[i], options_.muon_in_bf16 ? at::kBFloat16 : at::kFloat),
         -learning_rate * kMuonScale * std::sqrt(longest));
}

at::Tensor Orthogonalise(const at::Tensor& matrix, at::ScalarType products) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = (x / (x.norm() + 1e-7)).to(products).contiguous();
  for (int i = 0; i < 5; ++i) {
    const at::Tensor square = WithItself(x);
    x = kA * x + at::matmul(kB * square + kC * WithItself(square), x);
  }
  x = x.to(matrix.scalar_type());
  return tall ? x.t() : x;
}

}  // namespace longspec::train
