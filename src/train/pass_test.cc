// SPDX-License-Identifier: Apache-2.0
//
// A forward and backward pass: padding, where positions go, and what gets a gradient.
#include "train/pass.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/dispatch.h"
#include "model/rope.h"
#include "train/adamw.h"
#include "train/testing/rig.h"

namespace longspec::train {
namespace {

using testing::Rig;

// A draft, the features of the rig and the frozen parts, as a run has them.
struct Parts {
  explicit Parts(const Rig& rig, int window = 512)
      : set(*FeatureSet::Open(rig.options.features)),
        net({.target = set.target(), .n_ff = 32, .window = window}, 7, at::kCPU),
        frozen(*LoadFrozenParts(rig.options.model, set.target())) {
    for (const auto& [name, tensor] : net.tensors()) {
      if (!tensor.requires_grad()) continue;
      names.push_back(name);
      parameters.push_back(tensor);
    }
  }

  PassSum Run(const std::vector<int>& sequences, const PassDraw& draw) const {
    return RunPass(net, parameters, frozen, MakeBatch(set, sequences, labels), draw);
  }

  FeatureSet set;
  DraftNet net;
  FrozenParts frozen;
  LabelOptions labels;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
};

double Relative(const at::Tensor& got, const at::Tensor& expected) {
  return ((got - expected).norm() / expected.norm()).item<double>();
}

TEST(RunPass, PaddingChangesNothing) {
  const std::vector<int> lengths = {48, 17, 30};
  const Rig rig({}, lengths);
  const PassDraw plain, moved = {.lag = 4, .positions = {.anchors = 2, .offset = 100}};
  for (const int window : {512, 9}) {
    for (const PassDraw& draw : {plain, moved}) {
      Parts parts(rig, window);
      parts.labels.distill = 0.5;
      const PassSum together = parts.Run({0, 1, 2}, draw);
      EXPECT_EQ(together.tokens, 48 + 17 + 30);
      EXPECT_EQ(together.padded, 3 * 48);
      EXPECT_EQ(together.rows, 47 + 16 + 29);
      PassSum alone = parts.Run({0}, draw);
      for (const int i : {1, 2}) {
        const PassSum next = parts.Run({i}, draw);
        alone.loss += next.loss;
        for (size_t p = 0; p < next.gradients.size(); ++p) alone.gradients[p] += next.gradients[p];
      }
      EXPECT_NEAR(together.loss, alone.loss, 1e-6 * alone.loss);
      for (size_t p = 0; p < alone.gradients.size(); ++p) {
        EXPECT_LT(Relative(together.gradients[p], alone.gradients[p]), 2e-5) << parts.names[p];
      }
    }
  }
}

TEST(RunPass, OnlyTheDraftHasGradients) {
  const Rig rig;
  Parts parts(rig);
  Batch batch = MakeBatch(parts.set, std::vector<int>{0, 3}, parts.labels);
  // Also if somebody asked for theirs.
  std::vector<at::Tensor> others = {parts.frozen.embedding, parts.frozen.head, batch.keys, batch.values};
  std::vector<at::Tensor> before;
  for (at::Tensor& tensor : others) before.push_back(tensor.requires_grad_(true).detach().clone());
  const PassDraw draw = {.lag = 2, .positions = {.anchors = 1, .offset = 9}};
  const PassSum sum = RunPass(parts.net, parts.parameters, parts.frozen, batch, draw);
  ASSERT_EQ(sum.gradients.size(), 16U);  // without keys and values of cross-attention, which are the target's
  for (size_t p = 0; p < sum.gradients.size(); ++p) {
    ASSERT_TRUE(sum.gradients[p].defined()) << parts.names[p];
    EXPECT_GT(sum.gradients[p].abs().sum().item<double>(), 0.0) << parts.names[p];
    at::Tensor parameter = parts.parameters[p];
    parameter.mutable_grad() = sum.gradients[p];
  }
  AdamW optimiser(parts.parameters, {});
  optimiser.Step(0, 0.1);
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(others[i].grad().defined()) << i;
    EXPECT_TRUE(others[i].equal(before[i])) << i;
  }
  for (const auto& [name, tensor] : parts.net.tensors()) EXPECT_FALSE(tensor.grad().defined()) << name;
}

TEST(RunPass, WithoutALabelThereIsNothing) {
  const Rig rig;
  Parts parts(rig);
  parts.labels.vocab = {0};
  const PassSum sum = parts.Run({0}, {});
  EXPECT_TRUE(sum.gradients.empty());
  EXPECT_EQ(sum.loss, 0.0);
  EXPECT_EQ(sum.tokens, testing::kLength);
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
  constexpr int kKeys = 12, kHeads = 2, kWidth = 20, kRotated = 16;
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
        at::empty({1, kKeys, kHeads, kWidth}).uniform_(-1.0, 1.0, at::detail::createCPUGenerator(5));
    const auto rotated = [&](const PositionDraw& draw) {
      at::Tensor keys = at::empty_like(raw);
      for (int64_t i = 0; i < kKeys; ++i) {
        for (int64_t h = 0; h < kHeads; ++h) {
          const auto head = RotatedByTheEngine(config, raw[0][i][h], PositionOf(draw, i));
          std::ranges::copy(head, keys[0][i][h].data_ptr<float>());
        }
      }
      return keys;
    };
    Batch batch;
    batch.tokens = at::zeros({1, kKeys}, at::kLong);
    batch.keys = rotated({});
    batch.values = at::ones_like(raw);
    for (int anchors = 0; anchors <= kMaxAnchors; ++anchors) {
      for (const int64_t offset : {0, 1, 700, 28000}) {
        const PositionDraw draw = {.anchors = anchors, .offset = offset};
        const DraftNet::Input input =
            PlaceBatch(batch, at::zeros({1, 8}), target, {.lag = 3, .positions = draw});
        EXPECT_LT((input.keys - rotated(draw)).abs().max().item<double>(), 1e-5) << anchors << " " << offset;
        for (int64_t i = 0; i < kKeys; ++i) {
          EXPECT_EQ(input.positions[i].item<int64_t>(), i < anchors ? i : i + offset);
        }
        EXPECT_TRUE(input.values.equal(batch.values));
        EXPECT_EQ(input.lag, 3);
      }
    }
  }
}

}  // namespace
}  // namespace longspec::train
