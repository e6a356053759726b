// SPDX-License-Identifier: Apache-2.0
//
// What Beagle's queries see in both of its stages (behaviours of its specification by number).
#include "train/beagle.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "train/row_kernels.h"
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
  explicit BeagleRig(int simulate = 0, int window = 3, int length = testing::kLength,
                     Precision precision = Precision::kF32)
      : KindRig({.kind = "beagle",
                 .precision = precision,
                 .simulate = simulate,
                 .block_window = window,
                 .noise = StateNoise::kNone},
                {length}),
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

// Of all trained parameters.
std::vector<at::Tensor> GradientsOf(const Trainee& trainee, const at::Tensor& sum) {
  for (const at::Tensor& parameter : trainee.parameters().Trained()) parameter.mutable_grad().reset();
  sum.backward({}, /*retain_graph=*/true);
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : trainee.parameters().Trained()) all.push_back(parameter.grad().clone());
  return all;
}

// 15: no gradient goes through a draft that was written back: gradients are those of numbers that nothing
// made. Its keys alone see the projection's weights. With the draft itself in their place there would be one.
TEST(Beagle, DraftsThatAreReadAreDetached) {
  const BeagleRig rig(2);
  const PlacedBatch batch = BatchOf(rig, {1});
  const auto steps = rig.beagle().Late(batch, batch.final_hidden, 1);
  const at::Tensor drafts = at::zeros_like(batch.final_hidden).index_copy(0, steps[0].rows, steps[0].states);
  const at::Tensor numbers = drafts.detach().clone().requires_grad_(true);
  const auto second_step = [&](const at::Tensor& own) {
    const auto of = own.defined() ? rig.beagle().Late(batch, batch.final_hidden, 1, own) : steps;
    return GradientsOf(*rig.trainee, of[1].states.square().sum());
  };
  const std::vector<at::Tensor> got = second_step({}), fixed = second_step(numbers),
                                unstopped = second_step(drafts);
  double most = 0.0;
  for (size_t p = 0; p < fixed.size(); ++p) {
    EXPECT_LT(testing::Relative(got[p], fixed[p]), 1e-5) << p;
    most = std::max(most, testing::Relative(unstopped[p], fixed[p]));
  }
  EXPECT_GT(most, 1e-3);
  EXPECT_EQ(DifferentRows(numbers.grad(), at::zeros_like(numbers), 0.0).size(),
            static_cast<size_t>(steps[1].rows.numel()));
}

// 14: one simulated step of weight 1 is the first place of the early stage's windows: over all offsets,
// losses and gradients of the rows that stand there add up to it.
TEST(Beagle, OneStepIsTheFirstPlaceOfWindows) {
  constexpr int kWindow = 3;
  const BeagleRig late(1), early(0, kWindow);
  const PlacedBatch batch = BatchOf(late, {1, 2});
  const PassLoss whole = late.trainee->Loss(batch, {.seed = 7});
  at::Tensor sum;
  int64_t rows = 0;
  for (int offset = 0; offset < kWindow; ++offset) {
    const at::Tensor place = at::arange(testing::kLength).repeat({2});
    PlacedBatch first = batch;
    first.labels = batch.labels.masked_fill(place.sub(offset).remainder(kWindow).ne(0), -1);
    const PassLoss part = early.trainee->Loss(first, {.seed = static_cast<uint64_t>(offset)});
    sum = sum.defined() ? sum + part.sum : part.sum;
    rows += part.rows;
  }
  EXPECT_EQ(whole.rows, rows);
  EXPECT_EQ(rows, 2 * (testing::kLength - 2));  // the first token sees nothing, the last has no label
  EXPECT_NEAR(sum.item<double>(), whole.sum.item<double>(), 1e-5 * whole.sum.item<double>());
  const std::vector<at::Tensor> of_late = GradientsOf(*late.trainee, whole.sum),
                                of_early = GradientsOf(*early.trainee, sum);
  ASSERT_EQ(of_late.size(), of_early.size());
  for (size_t p = 0; p < of_late.size(); ++p) {
    EXPECT_GT(of_late[p].abs().sum().item<double>(), 0.0) << p;
    EXPECT_LT(testing::Relative(of_early[p], of_late[p]), 1e-5) << p;
  }
}

// Bytes of LibTorch's tensors that this thread makes.
struct CountedBytes : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now += size;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, most = 0;
};

struct LateMemory {
  int64_t kept = 0, most = 0;  // for the backward pass; at any time
};

// Behind its first token 1, 2, 4 or 8 divide it into windows whose number fills the rows that products take.
constexpr int kEvenLength = 129;

// Of a forward and backward pass of the late stage.
LateMemory MeasureLate(int n_steps, Precision precision) {
  const BeagleRig rig(n_steps, 3, kEvenLength, precision);
  const PlacedBatch batch = BatchOf(rig, {1, 2, 3, 4});
  const auto counted = std::make_shared<CountedBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counted);
  const PassLoss loss = rig.trainee->Loss(batch, {.seed = 0});
  const LateMemory memory = {.kept = counted->now};
  loss.sum.backward();
  return {.kept = memory.kept, .most = counted->most};
}

// 13: of L tokens there are the keys of L states and, behind the first step, of L drafts at most, however
// many of these each chain has. So no number of steps takes more than one and what these are made of.
TEST(Beagle, MemoryDoesNotGrowWithTheSteps) {
  constexpr double kDrafts = 4.0 * kEvenLength * (64 + 2 * 32) * sizeof(float);  // states, keys and values
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    if (precision == Precision::kBf16 && !HasRowKernels()) continue;
    const LateMemory one = MeasureLate(1, precision);
    EXPECT_GT(one.most, one.kept);
    EXPECT_GT(one.kept, 8 * kDrafts);
    for (const int steps : {2, 4, 8}) {
      const LateMemory several = MeasureLate(steps, precision);
      EXPECT_LT(static_cast<double>(several.kept - one.kept), 1.1 * kDrafts) << steps;
      EXPECT_LT(static_cast<double>(several.most - one.most), 1.1 * kDrafts) << steps;
    }
  }
}

// 18: embedding and head are the target's own and no parameters. The sides of parameters are those of the
// target, so they can be counted at another size: with 7 billion parameters' 202.4 million.
TEST(Beagle, HasNoEmbeddingAndNoHeadOfItsOwn) {
  testing::Rig rig({}, {testing::kLength}, {.n_embd = 96, .head_dim = 16}, testing::KeepAll(), 0);
  rig.options.draft = {.kind = "beagle", .n_ff = 160};
  const auto set = FeatureSet::Open(rig.options.features);
  const auto file = GgufFile::Open(rig.options.model);
  ASSERT_TRUE(set.ok() && file.ok());
  const auto parts = LoadFrozenParts(**file, set->target());
  ASSERT_TRUE(parts.ok());
  const BeagleTrainee trainee({.target = set->target(),
                               .model = *file,
                               .frozen = testing::FrozenOf(*parts, {}),
                               .options = rig.options.draft,
                               .seed = 1});
  EXPECT_EQ(trainee.setup().frozen.embedding.const_data_ptr(), parts->embedding.const_data_ptr());
  EXPECT_EQ(trainee.Head(1).const_data_ptr(), parts->head.const_data_ptr());
  const std::map<int64_t, int64_t> sides = {{96, 4096}, {4 * 16, 32 * 128}, {2 * 16, 32 * 128}, {160, 11008}};
  int64_t n = 0;
  for (const auto& [name, tensor] : trainee.parameters().tensors()) {
    int64_t elements = 1;
    for (const int64_t side : tensor.sizes()) {
      ASSERT_TRUE(sides.contains(side)) << name;
      elements *= sides.at(side);
    }
    n += elements;
  }
  EXPECT_EQ(n, 202'383'360);
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
