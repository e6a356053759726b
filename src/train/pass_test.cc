// SPDX-License-Identifier: Apache-2.0
//
// A forward and backward pass: packing, where positions go, and what gets a gradient.
#include "train/pass.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/dispatch.h"
#include "network/rope.h"
#include "train/optimiser.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using testing::Relative;
using testing::Rig;
using testing::TraineeOf;

// A pass over some of the rig's sequences.
PassSum PassOver(const Rig& rig, const Trainee& trainee, const std::vector<int>& sequences,
                 const PassDraw& draw, const LabelOptions& labels = {}) {
  const auto set = FeatureSet::Open(rig.options.features);
  return RunPass(trainee, MakeBatch(*set, sequences, {.keys_values = true}, labels), draw);
}

std::vector<std::string> TrainedNames(const Trainee& trainee) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : trainee.parameters().tensors()) {
    if (tensor.requires_grad()) names.push_back(name);
  }
  return names;
}

TEST(RunPass, PackingChangesNothing) {
  const std::vector<int> lengths = {48, 17, 30};
  Rig rig({}, lengths);
  const PassDraw plain, moved = {.lag = 4, .positions = {.anchors = 2, .offset = 100}};
  for (const int window : {512, 9}) {
    rig.options.draft.window = window;
    const auto trainee = TraineeOf(rig);
    const std::vector<std::string> names = TrainedNames(*trainee);
    for (const PassDraw& draw : {plain, moved}) {
      const LabelOptions labels = {.distill = 0.5, .vocab = {}};
      const PassSum together = PassOver(rig, *trainee, {0, 1, 2}, draw, labels);
      EXPECT_EQ(together.tokens, 48 + 17 + 30);
      EXPECT_EQ(together.rows, 47 + 16 + 29);
      PassSum alone = PassOver(rig, *trainee, {0}, draw, labels);
      for (const int i : {1, 2}) {
        const PassSum next = PassOver(rig, *trainee, {i}, draw, labels);
        alone.loss += next.loss;
        for (size_t p = 0; p < next.gradients.size(); ++p) alone.gradients[p] += next.gradients[p];
      }
      EXPECT_NEAR(together.loss, alone.loss, 1e-6 * alone.loss);
      for (size_t p = 0; p < alone.gradients.size(); ++p) {
        EXPECT_LT(Relative(together.gradients[p], alone.gradients[p]), 2e-5) << names[p];
      }
    }
  }
}

TEST(RunPass, OnlyTheDraftHasGradients) {
  const Rig rig;
  const auto trainee = TraineeOf(rig);
  const auto set = FeatureSet::Open(rig.options.features);
  Batch batch = MakeBatch(*set, std::vector<int>{0, 3}, {.keys_values = true}, {});
  // Also if somebody asked for theirs.
  std::vector<at::Tensor> others = {trainee->setup().frozen.embedding, batch.keys, batch.values};
  std::vector<at::Tensor> before;
  for (at::Tensor& tensor : others) before.push_back(tensor.requires_grad_(true).detach().clone());
  const PassDraw draw = {.lag = 2, .positions = {.anchors = 1, .offset = 9}};
  const PassSum sum = RunPass(*trainee, batch, draw);
  const std::vector<at::Tensor> parameters = trainee->parameters().Trained();
  ASSERT_EQ(sum.gradients.size(), 16U);  // without keys and values of cross-attention, which are the target's
  for (size_t p = 0; p < sum.gradients.size(); ++p) {
    ASSERT_TRUE(sum.gradients[p].defined()) << p;
    EXPECT_GT(sum.gradients[p].abs().sum().item<double>(), 0.0) << p;
    at::Tensor parameter = parameters[p];
    parameter.mutable_grad() = sum.gradients[p];
  }
  Optimiser optimiser(parameters, {});
  optimiser.Step(0, 0.1);
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(others[i].grad().defined()) << i;
    EXPECT_TRUE(others[i].equal(before[i])) << i;
  }
  for (const auto& [name, tensor] : trainee->parameters().tensors()) {
    EXPECT_FALSE(tensor.grad().defined()) << name;
  }
}

TEST(RunPass, WithoutALabelThereIsNothing) {
  const Rig rig;
  const PassSum sum = PassOver(rig, *TraineeOf(rig), {0}, {}, {.distill = 0.0, .vocab = {0}});
  EXPECT_TRUE(sum.gradients.empty());
  EXPECT_EQ(sum.loss, 0.0);
  EXPECT_EQ(sum.tokens, testing::kLength);
}

// Products in bf16 are those in f32 but for some bits; only where the CPU has them.
TEST(RunPass, Bf16IsCloseToF32) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16") == 0) GTEST_SKIP() << "this CPU has no avx512_bf16";
#else
  GTEST_SKIP() << "this CPU has no avx512_bf16";
#endif
  Rig rig;
  const PassSum f32 = PassOver(rig, *TraineeOf(rig), {0, 1}, {});
  rig.options.draft.precision = Precision::kBf16;
  const auto trainee = TraineeOf(rig);
  const PassSum bf16 = PassOver(rig, *trainee, {0, 1}, {});
  EXPECT_NEAR(bf16.loss, f32.loss, 1e-3 * f32.loss);
  EXPECT_NE(bf16.loss, f32.loss);
  for (size_t p = 0; p < f32.gradients.size(); ++p) {
    EXPECT_LT(Relative(bf16.gradients[p], f32.gradients[p]), 0.1) << TrainedNames(*trainee)[p];
  }
}

// A head of the engine's, rotated in place by the reference kernels, in the order that features have.
std::vector<float> RotatedByTheEngine(const RopeConfig& config, const at::Tensor& head, int64_t position) {
  const kernels::KernelTable* table = *kernels::Choose("reference");
  const RopeTable rope(config);
  std::vector<float> cos_sin(static_cast<size_t>(config.n_rot));
  rope.Row(static_cast<int>(position), cos_sin.data());
  const auto half = static_cast<size_t>(config.n_rot) / 2;
  const bool adjacent = config.pairing == kernels::RopePairing::kAdjacent;
  const auto place = [&](size_t d) { return adjacent && d < 2 * half ? d / 2 + d % 2 * half : d; };
  std::vector<float> x(static_cast<size_t>(head.numel())), ordered(x.size());
  for (size_t d = 0; d < x.size(); ++d) x[d] = head.const_data_ptr<float>()[place(d)];
  table->rope(x.data(), config.n_rot, cos_sin.data(), config.pairing);
  for (size_t d = 0; d < x.size(); ++d) ordered[place(d)] = x[d];
  return ordered;
}

// Keys that the engine rotated to 0, 1, ... and a pass moved are those that the engine rotates to the
// positions of the pass.
TEST(PlaceBatch, KeysAreWhereTheEngineWouldRotateThem) {
  constexpr int kKeys = 12, kPassHeads = 2, kPassWidth = 20, kRotated = 16;
  const RopeConfig plain = {.n_rot = kRotated};
  RopeConfig yarn = {.scaling = RopeOptions::Scaling::kYarn,
                     .pairing = kernels::RopePairing::kHalfSplit,
                     .n_rot = kRotated,
                     .scale = 4.0,
                     .orig_ctx = 2048};
  for (const RopeConfig& config : {plain, yarn}) {
    const RopeTable table(config);
    FeatureTarget target;
    target.rope_frequencies = table.frequencies();
    target.rope_magnitude = table.magnitude();
    const at::Tensor raw =
        at::empty({kKeys, kPassHeads, kPassWidth}).uniform_(-1.0, 1.0, at::detail::createCPUGenerator(5));
    const auto rotated = [&](const PositionDraw& draw) {
      at::Tensor keys = at::empty_like(raw);
      for (int64_t i = 0; i < kKeys; ++i) {
        for (int64_t h = 0; h < kPassHeads; ++h) {
          const auto head = RotatedByTheEngine(config, raw[i][h], PositionOf(draw, i));
          std::ranges::copy(head, keys[i][h].data_ptr<float>());
        }
      }
      return keys;
    };
    // Two sequences, the second one of the first keys again.
    Batch batch;
    batch.ends = {kKeys, kKeys + 5};
    batch.tokens = at::zeros({kKeys + 5}, at::kLong);
    batch.rows = batch.labels = at::zeros({0}, at::kLong);
    batch.targets = {.ids = at::zeros({0, 1}, at::kLong), .weights = at::zeros({0, 1})};
    const auto both = [](const at::Tensor& keys) { return at::cat({keys, keys.slice(0, 0, 5)}, 0); };
    batch.keys = both(rotated({}));
    batch.values = at::ones_like(batch.keys);
    const auto place = [&](const PositionDraw& draw) {
      const PlacedBatch placed = PlaceBatch(batch, {.embedding = at::zeros({1, 8})}, target, draw);
      EXPECT_LT((placed.keys - both(rotated(draw))).abs().max().item<double>(), 1e-5)
          << draw.anchors << " " << draw.offset << " " << draw.gaps.size();
      EXPECT_TRUE(placed.values.equal(batch.values));
      return placed.positions;
    };
    for (int anchors = 0; anchors <= kMaxAnchors; ++anchors) {
      for (const int64_t offset : {0, 1, 700, 28000}) {
        const at::Tensor positions = place({.anchors = anchors, .offset = offset});
        for (int64_t i = 0; i < kKeys + 5; ++i) {
          const int64_t token = i % kKeys;
          EXPECT_EQ(positions[i].item<int64_t>(), token < anchors ? token : token + offset);
        }
      }
    }
    const at::Tensor gaps = place({.gaps = {{.before = 2, .size = 700}, {.before = 4, .size = 30}}});
    for (int64_t i = 0; i < kKeys; ++i) {
      EXPECT_EQ(gaps[i].item<int64_t>(), i + (i >= 2 ? 700 : 0) + (i >= 4 ? 30 : 0));
    }
  }
}

}  // namespace
}  // namespace longspec::train
