// SPDX-License-Identifier: Apache-2.0
//
// Trees by rates, and what validation makes of a draft whose choices are known.
#include "train/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using ::testing::ElementsAre;
using testing::KeepAll;
using testing::Rig;

TEST(BestTree, HasTheLikeliestNodes) {
  const std::vector<std::vector<double>> rates = {{0.5, 0.2, 0.1}, {0.5, 0.1, 0.0}};
  const auto tree = BestTree(rates, 4);
  ASSERT_EQ(tree.size(), 4U);
  EXPECT_THAT(tree[0], ElementsAre(0));
  EXPECT_THAT(tree[1], ElementsAre(0, 0));
  EXPECT_THAT(tree[2], ElementsAre(1));
  EXPECT_THAT(tree[3], ElementsAre(1, 0));  // of two with 0.1 the one that was opened by the smaller path
  EXPECT_EQ(BestTree(rates, 100).size(), 12U);
}

// Knows what follows: the states are one-hot rows behind a head of ones.
class Oracle : public Trainee {
 public:
  // At lag j the right token has rank ranks[j - 1].
  Oracle(TraineeSetup setup, std::vector<int64_t> ranks)
      : Trainee(std::move(setup)), ranks_(std::move(ranks)) {}

  PassLoss Loss(const PlacedBatch&, const PassDraw&) const override { return {}; }
  std::string Describe() const override { return {}; }
  at::Tensor Head(int) const override { return at::eye(setup_.target.n_vocab); }
  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    std::vector<at::Tensor> states;
    for (int lag = 0; lag < n_lags; ++lag) {
      at::Tensor state = at::rand({batch.n(), setup_.target.n_vocab}) * 0.1;
      for (int64_t row = 0; row + 1 < batch.n(); ++row) {
        const int64_t right = batch.tokens[row + 1].item<int64_t>();
        state[row][right] = 1.0;
        for (int64_t better = 0; better < ranks_[static_cast<size_t>(lag)]; ++better) {
          state[row][(right + 1 + better) % setup_.target.n_vocab] = 2.0;
        }
      }
      states.push_back(state);
    }
    return states;
  }

 private:
  const std::vector<int64_t> ranks_;
};

// Without the target's distribution the text is what is right.
TEST(Validator, CountsRanksAndAcceptedTokens) {
  const Rig rig({}, {testing::kLength}, {}, {}, 0);
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  const LabelOptions labels;
  const auto validate = [&](std::vector<int64_t> ranks) {
    TraineeSetup setup = testing::TraineeOf(rig)->setup();
    return Validator(*set, {}, labels).Look(Oracle(std::move(setup), std::move(ranks)));
  };
  const Validation right = validate({0, 0, 0, 0});
  EXPECT_EQ(right.all.rows, testing::kSequences * (testing::kLength - 1));
  EXPECT_THAT(right.all.agreement, ElementsAre(1.0, 1.0, 1.0, 1.0));
  EXPECT_EQ(right.all.accepted.chain, 4.0);
  EXPECT_EQ(right.all.accepted.tree_16, 4.0);
  const Validation mixed = validate({0, 2, 5, 0});
  EXPECT_THAT(mixed.all.agreement, ElementsAre(1.0, 0.0, 0.0, 1.0));
  EXPECT_THAT(mixed.all.top_4, ElementsAre(1.0, 1.0, 0.0, 1.0));
  EXPECT_EQ(mixed.all.accepted.chain, 1.0);
  EXPECT_EQ(mixed.all.accepted.tree_8, 4.0);  // the tree goes where what is right is known to be
  const Validation wrong = validate({40, 40, 40, 40});
  EXPECT_THAT(wrong.all.top_4, ElementsAre(0.0, 0.0, 0.0, 0.0));
  EXPECT_EQ(wrong.all.accepted.tree_16, 0.0);
}

// States that are no numbers are wrong guesses, and nothing else.
TEST(Validator, WhatIsNoNumberIsWrong) {
  class Nan final : public Oracle {
   public:
    using Oracle::Oracle;
    std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
      return std::vector<at::Tensor>(
          static_cast<size_t>(n_lags),
          at::full({batch.n(), setup_.target.n_vocab}, std::numeric_limits<float>::quiet_NaN()));
    }
  };
  const Rig rig({}, {testing::kLength}, {}, {}, 0);
  const auto set = FeatureSet::Open(rig.options.features);
  const auto like = testing::TraineeOf(rig);
  const LabelOptions labels;
  const Validation seen = Validator(*set, {}, labels).Look(Nan(like->setup(), {0, 0, 0, 0}));
  EXPECT_GT(seen.all.rows, 0);
  EXPECT_THAT(seen.all.agreement, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(seen.all.top_4, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(seen.all.accepted.chain, 0);
}

// With final hidden states it is the target's likeliest token; early exit at the last layer that computes its
// own is right always.
TEST(Validator, AsksTheTarget) {
  const Rig rig({}, {testing::kLength}, {}, KeepAll(), 0);
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  class Target : public Trainee {
   public:
    using Trainee::Trainee;
    PassLoss Loss(const PlacedBatch&, const PassDraw&) const override { return {}; }
    std::string Describe() const override { return {}; }
    std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
      return std::vector<at::Tensor>(static_cast<size_t>(n_lags), batch.final_hidden);
    }
  };
  const LabelOptions labels = {.distill = 1.0, .vocab = {}};
  Validator validator(*set, {}, labels);
  const Target target(testing::TraineeOf(rig)->setup());
  const Validation seen = validator.Look(target);
  EXPECT_EQ(validator.Look(target).all.loss, seen.all.loss);
  EXPECT_THAT(seen.all.agreement, ElementsAre(1.0, 1.0, 1.0, 1.0));
  EXPECT_EQ(seen.all.accepted.chain, 4.0);
}

}  // namespace
}  // namespace longspec::train
