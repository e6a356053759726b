// SPDX-License-Identifier: Apache-2.0
//
// EAGLE's chains, losses and noise.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/feature_chain.h"
#include "train/feature_regression.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using testing::DifferentRows;
using testing::Range;
using testing::TraineeOf;

struct EagleRig : testing::KindRig {
  EagleRig() : KindRig({.kind = "eagle"}) {}
};

TEST(Slots, StandAtTheTokensAfterFeatures) {
  const Ends ends = {4, 5, 8};
  const Slots slots = MakeSlots(ends);
  EXPECT_TRUE(slots.rows.equal(at::tensor({1, 2, 3, 6, 7}, at::kLong)));
  EXPECT_EQ(slots.ends, (Ends{3, 3, 5}));
  EXPECT_EQ(slots.seen, (std::vector<int64_t>{1, 2, 3, 1, 2}));
  EXPECT_TRUE(RowsAhead(ends, 1, at::kCPU).equal(at::tensor({2, 3, 3, 7, 7}, at::kLong)));
  const SlotsAhead ahead = Ahead(ends, 2);
  EXPECT_TRUE(ahead.slots.equal(at::tensor({0}, at::kLong)));
  EXPECT_TRUE(ahead.rows.equal(at::tensor({3}, at::kLong)));
}

// Slot j reads feature j and the token after it (behaviour 1 of the specification).
TEST(Eagle, PairsATokenWithTheFeatureBeforeIt) {
  const EagleRig rig;
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  const PlacedBatch before = BatchOf(rig, {1});
  PlacedBatch token = before, feature = before;
  token.embedded = before.embedded.clone();
  token.embedded[10] += 1.0;
  feature.final_hidden = before.final_hidden.clone();
  feature.final_hidden[10] += 1.0;
  const at::Tensor plain = trainee->Chain(before, 1)[0];
  EXPECT_EQ(DifferentRows(trainee->Chain(token, 1)[0], plain), Range(10, testing::kLength));
  EXPECT_EQ(DifferentRows(trainee->Chain(feature, 1)[0], plain), Range(11, testing::kLength));
  EXPECT_EQ(plain[0].abs().sum().item<double>(), 0.0);
}

// A chain's later steps are what a plain pass makes of features in whose place the draft's own stand.
TEST(Eagle, AChainReadsItsOwnStates) {
  const EagleRig rig;
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {2}, {}, {.anchors = 1, .offset = 30});
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 4);
  for (const int64_t row : {6, 20, testing::kLength - 1}) {
    PlacedBatch own = batch;
    own.final_hidden = batch.final_hidden.clone();
    for (int64_t lag = 2; lag <= 4; ++lag) {
      // The last of these features is lag - 1 steps on its way.
      for (int64_t step = 1; step < lag; ++step) {
        own.final_hidden[row - lag + step].copy_(chain[static_cast<size_t>(step) - 1][row - lag + step]);
      }
      const at::Tensor expected = trainee->Chain(own, 1)[0][row];
      const at::Tensor got = chain[static_cast<size_t>(lag) - 1][row];
      EXPECT_LT((got - expected).abs().max().item<double>(), 2e-6) << row << " " << lag;
      EXPECT_GT((got - chain[0][row]).abs().max().item<double>(), 1e-5) << row << " " << lag;
      own.final_hidden = batch.final_hidden.clone();
    }
  }
}

// Behaviour 16 of Beagle's: differences of 0.5 and 2 cost 0.125 and 1.5.
TEST(StateLoss, IsCrossEntropyAndSmoothL1) {
  PlacedBatch batch;
  batch.final_hidden = at::zeros({3, 4});
  batch.labels = at::tensor({-1, 0, 1}, at::kLong);
  batch.targets = {.ids = at::tensor({2, 0}, at::kLong).unsqueeze(1), .weights = at::ones({2, 1})};
  const at::Tensor head = at::eye(5, 4);
  const at::Tensor states =
      at::tensor({9.0F, 9.0F, 9.0F, 9.0F, 0.5F, 0.0F, 0.0F, 0.0F, 2.0F, 0.0F, 0.0F, 0.0F}).view({3, 4});
  const LabelledStates labelled = SelectLabelled(batch, states, at::tensor({0, 1, 2}, at::kLong));
  ASSERT_EQ(labelled.n(), 2);
  EXPECT_TRUE(labelled.rows.equal(at::tensor({1, 2}, at::kLong)));
  const double entropy = std::log(std::exp(0.5) + 4) + std::log(std::exp(2.0) + 4) - 2.0;
  EXPECT_NEAR(EntropyLoss(labelled, batch.targets, head).item<double>(), entropy, 1e-5);
  EXPECT_NEAR(RegressionLoss(labelled, batch).item<double>(), (0.125 + 1.5) / 4, 1e-6);
}

TEST(Noise, HasItsLaw) {
  const at::Tensor states = at::zeros({2048, 16});
  const auto noise = [&](const Ends& ends, StateNoise law, uint64_t seed) {
    return AddNoise(states, ends, {.noise = law, .noise_scale = 0.2}, seed);
  };
  EXPECT_NEAR(noise({2048}, StateNoise::kUniform, 1).abs().max().item<double>(), 0.1 * 512 / 2048, 1e-3);
  // Of each sequence by its own length, whatever is packed beside it.
  const at::Tensor both = noise({128, 2048}, StateNoise::kUniform, 1).abs();
  EXPECT_NEAR(both.slice(0, 0, 128).max().item<double>(), 0.1 * 512 / 128, 2e-3);
  EXPECT_NEAR(both.slice(0, 128, 2048).max().item<double>(), 0.1 * 512 / 1920, 1e-3);
  EXPECT_NEAR(noise({2048}, StateNoise::kGaussian, 1).std().item<double>(), 0.2, 0.01);
  EXPECT_EQ(noise({2048}, StateNoise::kNone, 1).abs().max().item<double>(), 0.0);
  EXPECT_TRUE(noise({2048}, StateNoise::kUniform, 1).equal(noise({2048}, StateNoise::kUniform, 1)));
  EXPECT_FALSE(noise({2048}, StateNoise::kUniform, 1).equal(noise({2048}, StateNoise::kUniform, 2)));
}

// Of each step the cross-entropy and ten times SmoothL1 to the target's state, a step counting 0.8 of the one
// before.
TEST(Eagle, LossIsTheWeightedSumOfStepsAndStates) {
  for (const double regression : {0.0, 10.0}) {
    testing::KindRig rig(
        {.kind = "eagle", .simulate = 3, .regression = regression, .noise = StateNoise::kNone});
    const auto trainee = TraineeOf(rig);
    const PlacedBatch batch = BatchOf(rig, {1, 2}, {.distill = 1.0, .vocab = {}});
    const PassLoss loss = trainee->Loss(batch, {});
    const at::NoGradGuard no_grad;
    const at::Tensor head = trainee->Head(1);
    const std::vector<at::Tensor> chain = trainee->Chain(batch, 3);
    double expected = 0.0;
    int64_t counted = 0;
    testing::ForEachDraftedRow(batch, 3, [&](int step, int64_t row) {
      const at::Tensor drafted = chain[static_cast<size_t>(step)][row], state = batch.final_hidden[row];
      const double distance = at::smooth_l1_loss(drafted, state).item<double>();
      expected +=
          std::pow(0.8, step) * (testing::CrossEntropy(head, drafted, head, state) + regression * distance);
      counted += step == 0 ? 1 : 0;
    });
    EXPECT_GT(counted, 40);
    EXPECT_EQ(loss.rows, counted);
    EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-4 * expected);
  }
}

// Behind the embedding alone, with small outputs: what is drafted first is nearly the token's embedding.
TEST(Eagle, BeginsWithTheEmbedding) {
  const EagleRig rig;
  const auto trainee = TraineeOf(rig);
  ASSERT_TRUE(trainee->InitFromTarget().ok());
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {1});
  const at::Tensor drafted = trainee->Chain(batch, 1)[0].slice(0, 1), token = batch.embedded.slice(0, 1);
  EXPECT_LT(testing::Relative(drafted, token), 0.5);
  EXPECT_GT(testing::Relative(drafted, token), 1e-4);
}

}  // namespace
}  // namespace longspec::train
