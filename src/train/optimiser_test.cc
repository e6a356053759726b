// SPDX-License-Identifier: Apache-2.0
//
// AdamW against its formula in double precision; what Muon makes of matrices.
#include "train/optimiser.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace longspec::train {
namespace {

constexpr int kSteps = 12;

// A matrix, a bias and a norm: decay does not tell them apart.
std::vector<at::Tensor> SomeParameters() {
  const at::Generator random = at::detail::createCPUGenerator(3);
  return {at::empty({3, 4}).normal_(0.0, 0.5, random).requires_grad_(true),
          at::empty({4}).normal_(0.0, 0.5, random).requires_grad_(true), at::ones({5}).requires_grad_(true)};
}

std::vector<double> DoublesOf(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().flatten().to(at::kDouble);
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// Loshchilov and Hutter 2019, algorithm 2, with the gradients of all tensors clipped together before.
class Reference {
 public:
  Reference(const std::vector<at::Tensor>& parameters, const OptimiserOptions& options) : options_(options) {
    for (const at::Tensor& p : parameters) {
      values.push_back(DoublesOf(p));
      means_.emplace_back(values.back().size());
      squares_.emplace_back(values.back().size());
    }
  }

  // The norm before clipping.
  double Step(const std::vector<std::vector<double>>& gradients, int t, double learning_rate) {
    double sum = 0.0;
    for (const auto& tensor : gradients) {
      for (const double g : tensor) sum += g * g;
    }
    const double norm = std::sqrt(sum);
    const bool clip = options_.max_norm > 0.0 && norm > options_.max_norm;
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t j = 0; j < values[i].size(); ++j) {
        const double g = clip ? gradients[i][j] * options_.max_norm / norm : gradients[i][j];
        double &m = means_[i][j], &v = squares_[i][j], &p = values[i][j];
        m = options_.beta1 * m + (1.0 - options_.beta1) * g;
        v = options_.beta2 * v + (1.0 - options_.beta2) * g * g;
        const double mean = m / (1.0 - std::pow(options_.beta1, t));
        const double square = v / (1.0 - std::pow(options_.beta2, t));
        p -= learning_rate * options_.weight_decay * p;
        p -= learning_rate * mean / (std::sqrt(square) + options_.epsilon);
      }
    }
    return norm;
  }

  std::vector<std::vector<double>> values;

 private:
  const OptimiserOptions options_;
  std::vector<std::vector<double>> means_, squares_;
};

// Gradients of about `size`, in turn above and below a norm of 1 if that is 0.3.
void ExpectTheFormula(const OptimiserOptions& options, double size) {
  const std::vector<at::Tensor> parameters = SomeParameters();
  Optimiser optimiser(parameters, options);
  Reference reference(parameters, options);
  const at::Generator random = at::detail::createCPUGenerator(4);
  for (int step = 0; step < kSteps; ++step) {
    const double learning_rate = 0.02 * (1.0 + step % 3);
    std::vector<std::vector<double>> gradients;
    for (at::Tensor p : parameters) {
      p.mutable_grad() = at::empty_like(p.detach()).normal_(0.0, step % 2 == 0 ? size : size / 8, random);
      gradients.push_back(DoublesOf(p.grad()));
    }
    const double norm = optimiser.Step(step, learning_rate);
    const double expected = reference.Step(gradients, step + 1, learning_rate);
    EXPECT_NEAR(norm, expected, 1e-6 * expected);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_FALSE(parameters[i].grad().defined());
      const std::vector<double> got = DoublesOf(parameters[i]);
      for (size_t j = 0; j < got.size(); ++j) {
        EXPECT_NEAR(got[j], reference.values[i][j], 2e-6) << "step " << step << " tensor " << i;
      }
    }
  }
}

TEST(AdamW, FollowsItsFormula) {
  ExpectTheFormula({}, 0.3);
  ExpectTheFormula({.weight_decay = 0.0}, 0.3);
  ExpectTheFormula({.max_norm = 0.0}, 0.3);
  ExpectTheFormula({.max_norm = 0.05}, 0.3);
  ExpectTheFormula({.beta1 = 0.8, .beta2 = 0.999, .epsilon = 1e-3, .weight_decay = 0.3}, 0.01);
}

// There epsilon is as large as the root of the squares.
TEST(AdamW, FollowsItsFormulaWhereGradientsAreSmall) { ExpectTheFormula({}, 1e-6); }

TEST(AdamW, ANormThatIsNoNumberChangesNothing) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<at::Tensor> parameters = SomeParameters();
    Optimiser optimiser(parameters, {});
    const auto give = [&](float value) {
      for (at::Tensor& p : parameters) p.mutable_grad() = at::full_like(p.detach(), 0.1);
      parameters[1].mutable_grad()[2] = value;
    };
    give(0.1F);
    optimiser.Step(0, 0.01);
    std::vector<at::Tensor> before;
    for (size_t i = 0; i < parameters.size(); ++i) {
      for (const at::Tensor& t :
           {parameters[i], optimiser.state()[2 * i].second, optimiser.state()[2 * i + 1].second}) {
        before.push_back(t.detach().clone());
      }
    }
    give(bad);
    EXPECT_FALSE(std::isfinite(optimiser.Step(1, 0.01)));
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(parameters[i].equal(before[3 * i]));
      EXPECT_TRUE(optimiser.state()[2 * i].second.equal(before[3 * i + 1]));
      EXPECT_TRUE(optimiser.state()[2 * i + 1].second.equal(before[3 * i + 2]));
      EXPECT_FALSE(parameters[i].grad().defined());
    }
  }
}

TEST(AdamW, ATensorWithoutAGradientStays) {
  std::vector<at::Tensor> parameters = SomeParameters();
  const at::Tensor before = parameters[1].detach().clone();
  Optimiser optimiser(parameters, {});
  parameters[0].mutable_grad() = at::full_like(parameters[0].detach(), 0.1);
  EXPECT_NEAR(optimiser.Step(0, 0.01), 0.1 * std::sqrt(12.0), 1e-6);
  EXPECT_TRUE(parameters[1].equal(before));
}

// All singular values come near 1, however they were; tall matrices and wide ones.
TEST(Orthogonalise, BringsSingularValuesNearOne) {
  const at::Generator random = at::detail::createCPUGenerator(5);
  for (const at::ScalarType products : {at::kFloat, at::kBFloat16}) {
    for (const auto& [rows, columns] :
         {std::pair(12, 40), std::pair(40, 12), std::pair(16, 16), std::pair(250, 700)}) {
      const at::Tensor matrix = at::empty({rows, columns}).normal_(0.0, 3.0, random);
      const at::Tensor values = at::linalg_svdvals(Orthogonalise(matrix, products));
      EXPECT_LT(values.max().item<double>(), 1.25);
      EXPECT_GT(values.min().item<double>(), rows == columns ? 0.0 : 0.65);
      // Singular vectors stay: the result times the matrix is positive.
      EXPECT_GT((Orthogonalise(matrix, products) * matrix).sum().item<double>(), 0.0);
    }
  }
}

// A matrix takes a step of that size in that direction, after the decay; a bias takes AdamW's.
TEST(Muon, IsForHiddenMatrices) {
  const OptimiserOptions options = {.max_norm = 0.0, .muon = true};
  std::vector<at::Tensor> parameters = SomeParameters(), others = SomeParameters();
  const std::vector<at::Tensor> before = SomeParameters();
  Optimiser muon(parameters, options, {true, false, false}), adam(others, {.max_norm = 0.0});
  const at::Tensor g = at::arange(12, at::kFloat).view({3, 4}) - 5.0;
  for (std::vector<at::Tensor>* list : {&parameters, &others}) {
    (*list)[0].mutable_grad() = g.clone();
    (*list)[1].mutable_grad() = at::ones({4});
  }
  muon.Step(0, 0.01);
  adam.Step(0, 0.01);
  const at::Tensor expected =
      before[0] * (1.0 - 0.01 * options.weight_decay) - 0.01 * 0.2 * 2.0 * Orthogonalise(g * 1.95);
  EXPECT_LT((parameters[0] - expected).abs().max().item<double>(), 1e-6);
  EXPECT_FALSE(parameters[0].equal(others[0]));
  EXPECT_TRUE(parameters[1].equal(others[1]));
  ASSERT_EQ(muon.state().size(), 5U);
  EXPECT_EQ(muon.state()[0].first, "muon.momentum.0");
}

}  // namespace
}  // namespace longspec::train
