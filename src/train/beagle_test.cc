// SPDX-License-Identifier: Apache-2.0
//
// What Beagle's queries see in both of its stages (behaviours of its specification by number).
#include "train/beagle.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using testing::DifferentRows;
using ::testing::ElementsAre;
using testing::KindRig;
using testing::Range;

// 9: golden rows.
TEST(BlockVisibility, HasItsGoldenRows) {
  EXPECT_THAT(BlockVisibility(12, 3, 1), ElementsAre(0, 1, 1, 1, 4, 4, 4, 7, 7, 7, 10, 10));
  EXPECT_THAT(BlockVisibility(12, 5, 0), ElementsAre(0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10));
  EXPECT_THAT(BlockVisibility(12, 5, 3), ElementsAre(0, 1, 2, 3, 3, 3, 3, 3, 8, 8, 8, 8));
  EXPECT_THAT(BlockVisibility(4, 1, 0), ElementsAre(0, 1, 2, 3));
}

// 10: over all offsets a query takes every place in its window once.
TEST(BlockVisibility, CoversEveryPlace) {
  constexpr int kWindow = 4;
  for (int64_t row = kWindow - 1; row < 20; ++row) {
    std::vector<int64_t> places;
    for (int offset = 0; offset < kWindow; ++offset) {
      places.push_back(row + 1 - BlockVisibility(20, kWindow, offset)[static_cast<size_t>(row)]);
    }
    EXPECT_THAT(places, ::testing::UnorderedElementsAre(1, 2, 3, 4)) << row;
  }
}

struct BeagleRig : KindRig {
  explicit BeagleRig(int simulate = 0, int window = 3)
      : KindRig({.kind = "beagle", .simulate = simulate, .block_window = window, .noise = StateNoise::kNone}),
        trainee(testing::TraineeOf(*this)) {}
  const BeagleTrainee& beagle() const { return static_cast<const BeagleTrainee&>(*trainee); }
  std::unique_ptr<Trainee> trainee;
};

// Queries begin as the target's; what makes keys and values of final hidden states does not: the target's own
// reads states that a norm made small.
TEST(Beagle, BeginsWithQueriesOfTheTarget) {
  const BeagleRig rig;
  const Parameters& net = rig.trainee->parameters();
  std::map<std::string, at::Tensor> before;
  for (const char* name : {"q", "k", "v"})
    before[name] = net.Find(std::string("layer.cross_attn.") + name + "_proj.weight").clone();
  ASSERT_TRUE(rig.trainee->InitFromTarget().ok());
  for (const auto& [name, weights] : before) {
    EXPECT_EQ(net.Find("layer.cross_attn." + name + "_proj.weight").equal(weights), name != "q") << name;
  }
}

// 1: neither its own state nor a later one.
TEST(Beagle, SeesWhatIsBeforeAToken) {
  const BeagleRig rig(0, 1);
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {1});
  const at::Tensor plain = rig.beagle().Early(batch, batch.final_hidden, 0);
  at::Tensor states = batch.final_hidden.clone();
  states[9] += 1.0;
  EXPECT_EQ(DifferentRows(rig.beagle().Early(batch, states, 0), plain), Range(10, testing::kLength));
  // One step of the early stage is what is drafted at lag 1 (k = 1: the baseline).
  const at::Tensor drafted = rig.trainee->Chain(batch, 1)[0];
  EXPECT_LT((drafted - plain).slice(0, 1).abs().max().item<double>(), 1e-6);
}

TEST(Beagle, WindowsSeeTheSameStates) {
  const BeagleRig rig(0, 3);
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {1});
  const at::Tensor plain = rig.beagle().Early(batch, batch.final_hidden, 1);
  at::Tensor states = batch.final_hidden.clone();
  states[5] += 1.0;  // q = 6 of 1, 2, ...: the first to see it is in the window from 8 on
  EXPECT_EQ(DifferentRows(rig.beagle().Early(batch, states, 1), plain), Range(7, testing::kLength));
}

// 11: the first step of the late stage is the first row of the early one's windows.
TEST(Beagle, LateBeginsAsEarly) {
  const at::NoGradGuard no_grad;
  const BeagleRig late(3), early(0, 3);
  const PlacedBatch batch = BatchOf(late, {1, 2});
  for (const int offset : {0, 1, 2}) {
    const auto steps = late.beagle().Late(batch, batch.final_hidden, offset);
    ASSERT_EQ(steps.size(), 3U);
    const at::Tensor rows = early.beagle().Early(batch, batch.final_hidden, offset);
    EXPECT_LT((steps[0].states - rows.index_select(0, steps[0].rows)).abs().max().item<double>(), 1e-6);
    // Every row behind the first window's beginning is in one step of one window.
    std::vector<int64_t> all;
    for (const auto& step : steps) {
      for (int64_t i = 0; i < step.rows.numel(); ++i) all.push_back(step.rows[i].item<int64_t>());
    }
    std::ranges::sort(all);
    const int64_t first = offset == 0 ? 3 : offset;
    std::vector<int64_t> expected = Range(first, testing::kLength);
    for (const int64_t row : Range(testing::kLength + first, 2 * testing::kLength)) expected.push_back(row);
    EXPECT_EQ(all, expected) << offset;
  }
}

// 12: with the target's states in place of drafts every step is plain strict attention.
TEST(Beagle, TeacherForcedLateIsStrictlyCausal) {
  const at::NoGradGuard no_grad;
  const BeagleRig late(4), plain(0, 1);
  const PlacedBatch batch = BatchOf(late, {1, 2}, {}, {.anchors = 2, .offset = 40});
  const at::Tensor rows = plain.beagle().Early(batch, batch.final_hidden, 0);
  for (const auto& step : late.beagle().Late(batch, batch.final_hidden, 2, batch.final_hidden)) {
    EXPECT_LT((step.states - rows.index_select(0, step.rows)).abs().max().item<double>(), 2e-6);
  }
}

// A simulated chain is the chain that is drafted.
TEST(Beagle, LateIsTheChain) {
  const at::NoGradGuard no_grad;
  const BeagleRig rig(4);
  const PlacedBatch batch = BatchOf(rig, {2});
  const auto steps = rig.beagle().Late(batch, batch.final_hidden, 1);
  const std::vector<at::Tensor> chain = rig.trainee->Chain(batch, 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_LT((steps[i].states - chain[i].index_select(0, steps[i].rows)).abs().max().item<double>(), 2e-6)
        << i;
  }
}

// 15: no gradient goes through a draft that was written back. Its keys alone see the projection's weights.
TEST(Beagle, DraftsThatAreReadAreDetached) {
  const BeagleRig rig(2);
  const PlacedBatch batch = BatchOf(rig, {1});
  const auto steps = rig.beagle().Late(batch, batch.final_hidden, 1);
  const at::Tensor states = steps[0].states.detach();
  at::Tensor own = at::zeros_like(batch.final_hidden).index_copy_(0, steps[0].rows, states);
  const auto gradients = [&](const std::vector<BeagleTrainee::LateStep>& of) {
    for (const at::Tensor& parameter : rig.trainee->parameters().Trained()) parameter.mutable_grad().reset();
    of[1].states.square().sum().backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : rig.trainee->parameters().Trained())
      all.push_back(parameter.grad().clone());
    return all;
  };
  const std::vector<at::Tensor> through = gradients(steps),
                                fixed = gradients(rig.beagle().Late(batch, batch.final_hidden, 1, own));
  for (size_t p = 0; p < fixed.size(); ++p) EXPECT_LT(testing::Relative(through[p], fixed[p]), 1e-5) << p;
}

// 20: a query that sees nothing is its token's embedding and what the MLP makes of it.
TEST(Beagle, NothingToSeeIsNoNumberLess) {
  const at::NoGradGuard no_grad;
  const BeagleRig rig(0, 5);
  const PlacedBatch batch = BatchOf(rig, {1});
  const at::Tensor states = rig.beagle().Early(batch, batch.final_hidden, 0);
  EXPECT_TRUE(states.isfinite().all().item<bool>());
  const Parameters& parameters = rig.trainee->parameters();
  const at::Tensor y = batch.embedded.slice(0, 0, 5);
  const at::Tensor normed = RmsNorm(y, parameters.Find("layer.post_attention_layernorm.weight"),
                                    rig.trainee->setup().target.rms_eps);
  const at::Tensor expected = y + Mlp(parameters, "layer.mlp", normed);
  EXPECT_LT((states.slice(0, 0, 5) - expected).abs().max().item<double>(), 1e-6);
}

// The loss of the early stage, by loops: of each row that has a label, from the end of the first window on,
// the cross-entropy of what follows, and SmoothL1 to the target's state, the mean over dimensions,
// `--regression` times.
TEST(Beagle, TheEarlyLossIsEntropyAndRegression) {
  const at::NoGradGuard no_grad;
  const BeagleRig rig(0, 3);
  const PlacedBatch batch = BatchOf(rig, {1});
  const PassLoss loss = rig.trainee->Loss(batch, {.seed = 5});  // windows begin at row 2 and each third one
  const at::Tensor states = rig.beagle().Early(batch, batch.final_hidden, 2).to(at::kDouble);
  const at::Tensor head = rig.trainee->setup().frozen.head.to(at::kDouble);
  const at::Tensor targets = batch.final_hidden.to(at::kDouble);
  double expected = 0.0;
  int64_t rows = 0;
  for (int64_t row = 2; row < batch.n(); ++row) {
    const auto label = batch.labels[row].item<int64_t>();
    if (label < 0) continue;
    ++rows;
    const at::Tensor logits = at::matmul(head, states[row]);
    const auto next = batch.targets.ids[label][0].item<int64_t>();
    expected += logits.logsumexp(0).item<double>() - logits[next].item<double>();
    double far = 0.0;
    for (int64_t i = 0; i < states.size(1); ++i) {
      const double d = std::abs((states[row][i] - targets[row][i]).item<double>());
      far += d < 1.0 ? 0.5 * d * d : d - 0.5;
    }
    expected += rig.options.draft.regression * far / static_cast<double>(states.size(1));
  }
  EXPECT_GT(rows, 5);
  EXPECT_EQ(loss.rows, rows);
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-4 * expected);
}

// 14: of s simulated steps the betas are s .. 1.
TEST(Beagle, EarlierStepsWeighMore) {
  BeagleRig rig(2);
  const PlacedBatch batch = BatchOf(rig, {1});
  rig.options.draft.regression = 0.0;
  const auto trainee = testing::TraineeOf(rig);
  const PassLoss loss = trainee->Loss(batch, {.seed = 1});
  const auto steps = static_cast<const BeagleTrainee&>(*trainee).Late(batch, batch.final_hidden, 1);
  double expected = 0.0;
  for (int i = 0; i < 2; ++i) {
    const auto& step = steps[static_cast<size_t>(i)];
    const at::Tensor labels = batch.labels.index_select(0, step.rows);
    const at::Tensor kept = labels.ge(0).nonzero().squeeze(1);
    const at::Tensor cross =
        FusedCrossEntropy(step.states.index_select(0, kept), trainee->setup().frozen.head,
                          batch.targets.Select(labels.index_select(0, kept)));
    expected += (2.0 - i) * cross.item<double>() * static_cast<double>(kept.numel());
  }
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-4 * expected);
}

}  // namespace
}  // namespace longspec::train
