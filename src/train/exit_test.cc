// SPDX-License-Identifier: Apache-2.0
//
// Early exit against the target itself.
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

// A block that begins as the target's last layer behind the layer before it is the target: of two layers, the
// one behind layer 0.
TEST(Exit, BehindTheLayerBeforeTheLastItIsTheTarget) {
  const KindRig rig({.kind = "exit", .layers = {0}});
  const auto trainee = TraineeOf(rig);
  ASSERT_TRUE(trainee->InitFromTarget().ok());
  const at::NoGradGuard no_grad;
  const PlacedBatch batch = BatchOf(rig, {1, 2});
  const std::vector<at::Tensor> chain = trainee->Chain(batch, 2);
  // Features are in bf16, and the engine's products in 8 bits.
  EXPECT_LT(testing::Relative(chain[0], batch.final_hidden), 0.02);
  EXPECT_TRUE(chain[1].equal(chain[0]));
}

TEST(Exit, ReadsOneLayer) {
  KindRig rig({.kind = "exit", .layers = {1}});
  const auto trainee = TraineeOf(rig);
  const at::NoGradGuard no_grad;
  PlacedBatch batch = BatchOf(rig, {1});
  const at::Tensor plain = trainee->Chain(batch, 1)[0];
  batch.hidden[0] = batch.hidden[0] + 1.0;
  EXPECT_TRUE(trainee->Chain(batch, 1)[0].equal(plain));
  batch.hidden[1] = batch.hidden[1].clone();
  batch.hidden[1][7] += 1.0;
  EXPECT_EQ(testing::DifferentRows(trainee->Chain(batch, 1)[0], plain), testing::Range(7, testing::kLength));
  rig.options.draft.layers = {2};
  EXPECT_THAT(rig.Error(),
              ::testing::HasSubstr("--layers: must be one layer of the target for this kind, 0 to 1"));
}

}  // namespace
}  // namespace longspec::train
