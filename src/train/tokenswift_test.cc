// SPDX-License-Identifier: Apache-2.0
//
// Which state each of TokenSwift's heads reads, what it begins as, and that later heads are on earlier ones.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "train/layers.h"
#include "train/testing/rig.h"
#include "train/testing/trainees.h"

namespace longspec::train {
namespace {

using testing::BatchOf;
using testing::KindRig;
using testing::TraineeOf;

constexpr int kLastLayer = 1;  // of the rig's target

// Head i predicts the token i + 2 places on: what follows a row's token comes from i + 1 rows before, at
// first with the target's own logits: what passes its head is its final hidden state.
TEST(TokenSwift, HeadsBeginAsTheTarget) {
  const KindRig rig({.kind = "tokenswift"});
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  ASSERT_TRUE(trainee->BeginsWithTarget());
  ASSERT_TRUE(trainee->InitFromTarget().ok());
  const PlacedBatch batch = BatchOf(rig, {1, 2});
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 4);
  for (int64_t head = 0; head < 3; ++head) {
    const at::Tensor& states = chain[static_cast<size_t>(head)];
    for (const int64_t begin : {0, testing::kLength}) {
      const at::Tensor of = states.slice(0, begin, begin + testing::kLength);
      const at::Tensor from = batch.final_hidden.slice(0, begin, begin + testing::kLength - 1 - head);
      EXPECT_LT(testing::Relative(of.slice(0, 1 + head), from), 0.01) << head;  // shards hold bf16
      EXPECT_EQ(of.slice(0, 0, 1 + head).abs().sum().item<double>(), 0.0);
    }
  }
  EXPECT_EQ(chain[3].abs().sum().item<double>(), 0.0);  // there is no fourth head
}

// As the released code has it: h = h + A norm(h), and the logits' state is another norm of it.
TEST(TokenSwift, EachHeadGoesOnFromTheOneBefore) {
  KindRig rig({.kind = "tokenswift", .n_heads = 2});
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  const Parameters& p = trainee->parameters();
  for (const auto& [name, tensor] : p.tensors()) {
    at::Tensor to = tensor;
    to.uniform_(-0.5, 0.5);
  }
  const PlacedBatch batch = BatchOf(rig, {1});
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 2);
  at::Tensor h = batch.hidden.at(kLastLayer);
  const double epsilon = trainee->setup().target.rms_eps;
  for (int64_t head = 0; head < 2; ++head) {
    const std::string name = "medusa_layers." + std::to_string(head) + ".";
    h = h + at::matmul(RmsNorm(h, p.Find(name + "input_layernorm.weight"), epsilon),
                       p.Find(name + "linear.weight").t());
    const at::Tensor expected = RmsNorm(h, p.Find(name + "post_layernorm.weight"), epsilon);
    EXPECT_LT(testing::Relative(chain[static_cast<size_t>(head)].slice(0, 1 + head),
                                expected.slice(0, 0, testing::kLength - 1 - head)),
              1e-5);
  }
  nlohmann::json config;
  trainee->AddConfig(&config);
  EXPECT_EQ(config.at("medusa_heads"), 2);
  rig.options.draft.n_heads = 0;
  EXPECT_THAT(rig.Error(), ::testing::HasSubstr("--heads: must be at least 1"));
}

}  // namespace
}  // namespace longspec::train
