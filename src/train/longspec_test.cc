// SPDX-License-Identifier: Apache-2.0
//
// What the draft's forward pass may and may not depend on (behaviours 8 and 11 of the specification).
#include "train/longspec.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::Range;

FeatureTarget TinyTarget() {
  FeatureTarget t;
  t.n_embd = 64;
  t.n_head = 4;
  t.n_head_kv = 2;
  t.head_dim = 16;
  t.n_ff = 96;
  t.n_vocab = 50;
  t.n_ctx = 4096;
  t.rms_eps = 1e-5;
  for (int i = 0; i < 8; ++i) t.rope_frequencies.push_back(std::pow(10000.0, -i / 8.0));
  return t;
}

// Two sequences of that length.
PlacedBatch RandomInput(int64_t length) {
  at::manual_seed(3);
  PlacedBatch batch;
  batch.ends = {length, 2 * length};
  batch.embedded = at::randn({2 * length, 64});
  batch.positions = at::arange(length, at::kLong).repeat(2);
  batch.keys = at::randn({2 * length, 2, 16});
  batch.values = at::randn({2 * length, 2, 16});
  batch.final_hidden = at::randn({2 * length, 64});
  return batch;
}

LongspecTrainee TinyNet(int window = 512, uint64_t seed = 5, bool own_keys = false) {
  return LongspecTrainee(
      {.target = TinyTarget(), .options = {.window = window, .own_keys = own_keys}, .seed = seed});
}

// Which rows of sequence 0 change when `change` is made; those of sequence 1 never do.
std::vector<int64_t> ChangedRows(const LongspecTrainee& net, int lag, const PlacedBatch& before,
                                 const std::function<void(PlacedBatch&)>& change) {
  const at::NoGradGuard no_grad;
  PlacedBatch after = before;
  after.embedded = before.embedded.clone();
  after.keys = before.keys.clone();
  after.values = before.values.clone();
  after.final_hidden = before.final_hidden.clone();
  change(after);
  const at::Tensor difference = (net.Forward(after, lag) - net.Forward(before, lag)).abs().amax(1);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < difference.size(0); ++i) {
    if (difference[i].item<double>() > 1e-7) rows.push_back(i);
  }
  return rows;
}

TEST(Longspec, HasTheTwentyTensors) {
  const LongspecTrainee trainee = TinyNet();
  const Parameters& net = trainee.parameters();
  ASSERT_EQ(net.tensors().size(), 20U);
  int64_t n = 0;
  for (const auto& [name, tensor] : net.tensors()) n += tensor.numel();
  const int64_t h = 64, kv = 32, ff = 96;
  EXPECT_EQ(n, 2 * (2 * h * h + 2 * h * kv + h + 2 * kv) + 3 * h * ff + 3 * h);
  EXPECT_EQ(net.Find("self_attn.k_proj.weight").sizes(), (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(net.Find("mlp.down_proj.weight").sizes(), (std::vector<int64_t>{64, 96}));
}

TEST(Longspec, BeginsFromTheSeed) {
  const LongspecTrainee first = TinyNet(), second = TinyNet(), third = TinyNet(512, 6);
  const Parameters &a = first.parameters(), &b = second.parameters(), &other = third.parameters();
  const std::string name = "mlp.up_proj.weight";
  EXPECT_TRUE(a.Find(name).equal(b.Find(name)));
  EXPECT_FALSE(a.Find(name).equal(other.Find(name)));
  EXPECT_NEAR(a.Find(name).std().item<double>(), 0.02, 0.002);
}

// Behaviour 8: at lag j the query of token t sees target keys 0 .. t - j, and none if t < j.
TEST(Longspec, CrossAttentionLags) {
  const LongspecTrainee net = TinyNet(), own = TinyNet(512, 5, true);
  for (const int lag : {1, 2, 3, 4}) {
    for (const int64_t key : {0, 3, 6}) {
      const auto touch = [key](PlacedBatch& input) {
        input.keys[key] += 1.0;
        input.values[key] += 1.0;
      };
      EXPECT_EQ(ChangedRows(net, lag, RandomInput(10), touch), Range(key + lag, 10)) << lag << " " << key;
      // With keys and values of its own it is the final hidden state that it sees so far.
      const auto touch_state = [key](PlacedBatch& input) { input.final_hidden[key] += 1.0; };
      EXPECT_EQ(ChangedRows(net, lag, RandomInput(10), touch_state), Range(0, 0));
      EXPECT_EQ(ChangedRows(own, lag, RandomInput(10), touch_state), Range(key + lag, 10));
      EXPECT_EQ(ChangedRows(own, lag, RandomInput(10), touch), Range(0, 0));
    }
  }
}

// Behaviour 9: one lag for all sequences of a pass. The last key of a sequence that has a gradient is seen by
// the last token that has something to predict, which is the last but one.
TEST(Longspec, AllSequencesOfAPassHaveOneLag) {
  const std::vector<int> lengths = {48, 17, 30};
  const testing::Rig rig({}, lengths);
  const auto trainee = testing::TraineeOf(rig);
  PlacedBatch batch = testing::BatchOf(rig, {0, 1, 2, 4});
  for (int lag = 1; lag <= 4; ++lag) {
    batch.keys = batch.keys.detach().clone().requires_grad_(true);
    trainee->Loss(batch, {.lag = lag, .seed = 3}).sum.backward();
    const at::Tensor learned = batch.keys.grad().abs().amax({1, 2}).gt(0);
    std::vector<int64_t> rows, expected;
    for (int64_t row = 0; row < batch.n(); ++row) {
      if (learned[row].item<bool>()) rows.push_back(row);
    }
    int64_t begin = 0;
    for (const int64_t end : batch.ends) {
      for (int64_t row = begin; row <= end - 2 - lag; ++row) expected.push_back(row);
      begin = end;
    }
    EXPECT_EQ(rows, expected) << lag;
  }
}

TEST(Longspec, RowsBeforeTheLagSeeNothingOfTheTarget) {
  const LongspecTrainee net = TinyNet();
  const auto drop = [](PlacedBatch& input) { input.values.zero_(); };
  const auto drop_first = [](PlacedBatch& input) { input.values.slice(0, 0, 9).zero_(); };
  EXPECT_EQ(ChangedRows(net, 4, RandomInput(9), drop_first), Range(4, 9));
  EXPECT_EQ(ChangedRows(net, 4, RandomInput(3), drop), Range(0, 0));
  // They are rows all the same, with a gradient for what they do use.
  const at::Tensor out = net.Forward(RandomInput(3), 4);
  out.sum().backward();
  EXPECT_TRUE(net.parameters().Find("self_attn.q_proj.weight").grad().defined());
}

// Behaviour 6: `window` tokens back and itself, also where the attention is computed in blocks.
TEST(Longspec, SelfAttentionSeesTheWindow) {
  const LongspecTrainee net = TinyNet(70);
  for (const int64_t token : {0, 60, 71, 140}) {
    const auto touch = [token](PlacedBatch& input) { input.embedded[token] += 1.0; };
    EXPECT_EQ(ChangedRows(net, 1, RandomInput(230), touch), Range(token, std::min<int64_t>(230, token + 71)))
        << token;
  }
}

TEST(Longspec, BlocksChangeNothing) {
  const at::NoGradGuard no_grad;
  const PlacedBatch input = RandomInput(200);
  // Of all rows only the last one's window is shorter.
  const at::Tensor whole = TinyNet(199).Forward(input, 2).slice(0, 0, 199);
  const at::Tensor blocks = TinyNet(198).Forward(input, 2).slice(0, 0, 199);
  EXPECT_LT((whole - blocks).abs().max().item<double>(), 1e-5);
}

// Behaviour 11: gradients reach what is used, and nothing else.
TEST(Longspec, OnlyUsedTensorsHaveGradients) {
  for (const bool own_keys : {false, true}) {
    const LongspecTrainee net = TinyNet(512, 5, own_keys);
    const PlacedBatch input = RandomInput(12);
    net.Forward(input, 1).square().sum().backward();
    for (const auto& [name, tensor] : net.parameters().tensors()) {
      const bool unused =
          !own_keys && (name.starts_with("cross_attn.k_proj") || name.starts_with("cross_attn.v_proj"));
      EXPECT_EQ(tensor.grad().defined(), !unused) << name;
      if (unused) continue;
      EXPECT_GT(tensor.grad().abs().sum().item<double>(), 0.0) << name;
    }
    EXPECT_FALSE(input.keys.requires_grad());
  }
}

// RoPE is relative: moved together, queries and keys give the same.
TEST(Longspec, KeysCanBeMovedToOtherPositions) {
  const at::NoGradGuard no_grad;
  const FeatureTarget target = TinyTarget();
  const LongspecTrainee net = TinyNet();
  PlacedBatch input = RandomInput(20);
  const at::Tensor plain = net.Forward(input, 1);
  const at::Tensor moves = at::full({40}, 1234, at::kLong);
  input.positions = input.positions + 1234;
  EXPECT_GT((net.Forward(input, 1) - plain).abs().max().item<double>(), 1e-4);
  input.keys = Rotate(input.keys, MakeRotation(target, moves, 1.0));
  EXPECT_LT((net.Forward(input, 1) - plain).abs().max().item<double>(), 1e-5);
}

TEST(Rotate, IsTheAngleOfThePosition) {
  const FeatureTarget target = TinyTarget();
  at::Tensor x = at::zeros({1, 1, 16});
  x[0][0][2] = 1.0;  // the first half of pair 2
  const at::Tensor y = Rotate(x, MakeRotation(target, at::tensor({7}, at::kLong), 2.0));
  const double angle = 7.0 * target.rope_frequencies[2];
  EXPECT_NEAR(y[0][0][2].item<double>(), 2.0 * std::cos(angle), 1e-6);
  EXPECT_NEAR(y[0][0][10].item<double>(), 2.0 * std::sin(angle), 1e-6);
}

}  // namespace
}  // namespace longspec::train
