// SPDX-License-Identifier: Apache-2.0
//
// Which state a Medusa head reads, and what it begins as.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using testing::KindRig;
using testing::TraineeOf;

// Head i predicts the token i + 2 places on: what follows a row's token comes from i + 1 rows before, at
// first with the base head's own logits.
TEST(Medusa, HeadsBeginAsNoChange) {
  const KindRig rig({.kind = "medusa", .n_heads = 3});
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {1, 2});
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 4);
  for (int64_t head = 0; head < 3; ++head) {
    const at::Tensor& states = chain[static_cast<size_t>(head)];
    for (const int64_t begin : {0, testing::kLength}) {
      const at::Tensor of = states.slice(0, begin, begin + testing::kLength);
      const at::Tensor from = batch.final_hidden.slice(0, begin, begin + testing::kLength - 1 - head);
      EXPECT_TRUE(of.slice(0, 1 + head).equal(from)) << head;
      EXPECT_EQ(of.slice(0, 0, 1 + head).abs().sum().item<double>(), 0.0);
    }
  }
  EXPECT_EQ(chain[3].abs().sum().item<double>(), 0.0);  // there is no fourth head
}

TEST(Medusa, AHeadHasItsOwnLayer) {
  KindRig rig({.kind = "medusa", .n_heads = 2});
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {1});
  const std::vector<at::Tensor> before = trainee->Chain(batch, 2);
  at::Tensor bias = trainee->parameters().Find("medusa_head.1.0.linear.bias");
  bias.fill_(1.0);
  const std::vector<at::Tensor> after = trainee->Chain(batch, 2);
  EXPECT_TRUE(after[0].equal(before[0]));
  const double silu = 1.0 / (1.0 + std::exp(-1.0));
  EXPECT_NEAR((after[1] - before[1]).slice(0, 2).mean().item<double>(), silu, 1e-5);
  rig.options.draft.n_heads = 0;
  EXPECT_THAT(rig.Error(), ::testing::HasSubstr("--heads: must be at least 1"));
}

}  // namespace
}  // namespace longspec::train
