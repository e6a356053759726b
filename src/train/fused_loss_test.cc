// SPDX-License-Identifier: Apache-2.0
//
// Behaviour 11: the loss in parts against the whole one, and its gradient against LibTorch's.
#include "train/fused_loss.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

namespace longspec::train {
namespace {

struct Problem {
  at::Tensor hidden, head;
  Targets targets;
};

Problem MakeProblem(int64_t n, int64_t k) {
  at::manual_seed(7);
  Problem p;
  p.hidden = at::randn({n, 24}).requires_grad_(true);
  p.head = at::randn({300, 24});
  p.targets.ids = at::randint(0, 300, {n, k}, at::kLong);
  const at::Tensor weights = at::rand({n, k}) + 0.1;
  p.targets.weights = weights / weights.sum(1, true);
  return p;
}

at::Tensor Unfused(const Problem& p) {
  const at::Tensor logits = at::matmul(p.hidden, p.head.t());
  const at::Tensor log_probs = at::log_softmax(logits, 1).gather(1, p.targets.ids);
  return -(log_probs * p.targets.weights).sum(1).mean();
}

double RelativeDistance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

TEST(FusedCrossEntropy, LossAndGradientAreThoseOfTheWhole) {
  for (const int64_t k : {1, 5}) {
    for (const int64_t rows_at_once : {1, 16, 37, 1000}) {
      Problem p = MakeProblem(37, k);
      const at::Tensor whole = Unfused(p);
      (whole * 3.0).backward();
      const at::Tensor expected = p.hidden.grad().clone();
      p.hidden.mutable_grad().reset();
      const at::Tensor fused = FusedCrossEntropy(p.hidden, p.head, p.targets, rows_at_once);
      (fused * 3.0).backward();
      EXPECT_LT(RelativeDistance(fused, whole), 1e-5) << k << " " << rows_at_once;
      EXPECT_LT(RelativeDistance(p.hidden.grad(), expected), 1e-4) << k << " " << rows_at_once;
    }
  }
}

TEST(FusedCrossEntropy, IsTheUsualOneForOneLabel) {
  Problem p = MakeProblem(20, 1);
  const at::Tensor usual = at::cross_entropy_loss(at::matmul(p.hidden, p.head.t()), p.targets.ids.squeeze(1));
  EXPECT_LT(RelativeDistance(FusedCrossEntropy(p.hidden, p.head, p.targets), usual), 1e-5);
}

// The gradient against differences of the loss itself.
TEST(FusedCrossEntropy, GradientIsTheSlope) {
  Problem p = MakeProblem(4, 2);
  p.hidden = p.hidden.detach().to(at::kDouble).requires_grad_(true);
  p.head = p.head.to(at::kDouble);
  p.targets.weights = p.targets.weights.to(at::kDouble);
  FusedCrossEntropy(p.hidden, p.head, p.targets, 3).backward();
  const at::Tensor gradient = p.hidden.grad();
  const at::NoGradGuard no_grad;
  for (const int64_t i : {0, 30, 95}) {
    const auto loss_at = [&](double step) {
      at::Tensor moved = p.hidden.detach().clone();
      moved.view(-1)[i] += step;
      return FusedCrossEntropy(moved, p.head, p.targets, 3).item<double>();
    };
    const double slope = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
    EXPECT_NEAR(gradient.flatten()[i].item<double>(), slope, 1e-6) << i;
  }
}

// A share of the distribution that states give behind the head, beside labels.
TEST(FusedCrossEntropy, SoftLabelsFromStates) {
  Problem p = MakeProblem(21, 1);
  p.targets.states = at::randn({21, 24});
  p.targets.soft = at::rand({21});
  p.targets.weights = (1.0 - p.targets.soft).unsqueeze(1);
  const at::Tensor other = at::randn({300, 24});
  for (const at::Tensor& label_head : {at::Tensor(), other}) {
    p.hidden.mutable_grad().reset();
    const at::Tensor expected =
        at::matmul(p.targets.states, (label_head.defined() ? label_head : p.head).t()).softmax(1);
    const at::Tensor log_probs = at::log_softmax(at::matmul(p.hidden, p.head.t()), 1);
    const at::Tensor whole = -((log_probs.gather(1, p.targets.ids) * p.targets.weights).sum(1) +
                               (log_probs * expected).sum(1) * p.targets.soft)
                                  .mean();
    whole.backward();
    const at::Tensor slope = p.hidden.grad().clone();
    p.hidden.mutable_grad().reset();
    const at::Tensor fused = FusedCrossEntropy(p.hidden, p.head, p.targets, 8, label_head);
    fused.backward();
    EXPECT_LT(RelativeDistance(fused, whole), 1e-5);
    EXPECT_LT(RelativeDistance(p.hidden.grad(), slope), 1e-4);
  }
}

// A row of the head that stands for three tokens is three equal rows.
TEST(FusedCrossEntropy, RowsThatStandForSeveral) {
  for (const bool soft : {false, true}) {
    Problem p = MakeProblem(21, 1);
    if (soft) {
      p.targets.states = at::randn({21, 24});
      p.targets.soft = at::full({21}, 0.75);
      p.targets.weights = at::full({21, 1}, 0.25);
    }
    p.targets.ids = p.targets.ids % 100;
    Problem several = p;
    several.hidden = p.hidden.detach().clone().requires_grad_(true);
    several.head = at::cat({p.head.slice(0, 0, 100), p.head.slice(0, 100).repeat({3, 1})});
    p.targets.log_counts = at::cat({at::zeros({100}), at::full({200}, std::log(3.0))});
    const at::Tensor expected = FusedCrossEntropy(several.hidden, several.head, several.targets, 8);
    expected.backward();
    const at::Tensor loss = FusedCrossEntropy(p.hidden, p.head, p.targets, 8);
    loss.backward();
    EXPECT_LT(RelativeDistance(p.hidden.grad(), several.hidden.grad()), 1e-4);
    // A distribution over three tokens of one score has the logarithm of three more entropy.
    const double more = soft ? 0.75 * std::log(3.0) *
                                   at::softmax(at::matmul(several.targets.states, several.head.t()), 1)
                                       .slice(1, 100)
                                       .sum(1)
                                       .mean()
                                       .item<double>()
                             : 0.0;
    EXPECT_NEAR(loss.item<double>() + more, expected.item<double>(), 1e-4);
  }
}

TEST(FusedCrossEntropy, AHeadOfItsOwnGetsAGradient) {
  Problem p = MakeProblem(21, 2);
  p.head.requires_grad_(true);
  (Unfused(p) * 2.0).backward();
  const at::Tensor hidden = p.hidden.grad().clone(), head = p.head.grad().clone();
  p.hidden.mutable_grad().reset();
  p.head.mutable_grad().reset();
  (FusedCrossEntropy(p.hidden, p.head, p.targets, 8) * 2.0).backward();
  EXPECT_LT(RelativeDistance(p.hidden.grad(), hidden), 1e-4);
  EXPECT_LT(RelativeDistance(p.head.grad(), head), 1e-4);
}

// Logits in bf16 against those of f32: labels, soft ones, a head of its own, logits computed beforehand, rows
// that stand for several.
TEST(FusedCrossEntropy, InBf16) {
  for (const bool trained : {false, true}) {
    Problem p = MakeProblem(75, 2);
    p.targets.log_counts = at::rand({300}) * 2.0;
    p.targets.states = at::randn({75, 24});
    p.targets.soft = at::rand({75});
    p.targets.weights = p.targets.weights * (1.0 - p.targets.soft).unsqueeze(1);
    const at::Tensor label_head = at::randn({300, 24}).to(at::kBFloat16);
    at::Tensor head = p.head.to(at::kBFloat16);
    p.head = head.to(at::kFloat).requires_grad_(trained);
    head.requires_grad_(trained);
    const at::Tensor expected = FusedCrossEntropy(p.hidden, p.head, p.targets, 32, label_head.to(at::kFloat));
    expected.backward();
    const at::Tensor slope = p.hidden.grad().clone();
    for (const Targets& targets : {p.targets, p.targets.WithLogits(label_head)}) {
      p.hidden.mutable_grad().reset();
      if (trained) head.mutable_grad().reset();
      const at::Tensor loss = FusedCrossEntropy(p.hidden, head, targets, 32, label_head);
      loss.backward();
      EXPECT_LT(RelativeDistance(loss, expected), 5e-3);
      EXPECT_LT(RelativeDistance(p.hidden.grad(), slope), 0.02);
      if (!trained) continue;
      EXPECT_LT(RelativeDistance(head.grad().to(at::kFloat), p.head.grad()), 0.02);
    }
  }
}

// Of each part of the targets the same rows are taken, in the order that was asked for.
TEST(Targets, SelectsRows) {
  Problem p = MakeProblem(5, 2);
  p.targets.states = at::randn({5, 24});
  p.targets.soft = at::rand({5});
  const Targets two = p.targets.Select(at::tensor({3, 1}, at::kLong));
  EXPECT_TRUE(two.ids[0].equal(p.targets.ids[3]));
  EXPECT_TRUE(two.weights[1].equal(p.targets.weights[1]));
  EXPECT_TRUE(two.states[1].equal(p.targets.states[1]));
  EXPECT_TRUE(two.soft[0].equal(p.targets.soft[3]));
}

}  // namespace
}  // namespace longspec::train
