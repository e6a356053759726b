// SPDX-License-Identifier: Apache-2.0
//
// Sequences as batches: labels, reduced and soft ones, and packing.
#include "train/feature_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tensor/half.h"
#include "train/testing/rig.h"

namespace longspec::train {
namespace {

using testing::kLength;
using testing::kTopK;
using testing::Rig;
using testing::SequenceTokens;

TEST(MakeBatch, TargetsAreTheTokensThatFollow) {
  Rig rig([](FeatureHeader&, std::vector<int8_t>& loss) {
    loss[3] = 0;
    loss[0] = 1;
  });
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  const std::vector<int> sequences = {2, 0};
  const Batch batch = MakeBatch(*set, sequences, {.keys_values = true}, {});
  EXPECT_EQ(batch.tokens.numel(), 2 * kLength);
  EXPECT_EQ(batch.ends, (Ends{kLength, 2 * kLength}));
  EXPECT_EQ(batch.rows.numel(), 2 * (kLength - 2));  // the last row and the one before token 3 have none
  const std::vector<int32_t> tokens = SequenceTokens(2);
  for (int64_t i = 0; i < kLength - 2; ++i) {
    const int64_t row = batch.rows[i].item<int64_t>();
    EXPECT_EQ(row, i < 2 ? i : i + 1);
    EXPECT_EQ(batch.targets.ids[i][0].item<int64_t>(), tokens[static_cast<size_t>(row) + 1]);
    EXPECT_EQ(batch.targets.weights[i][0].item<float>(), 1.0F);
  }
  EXPECT_EQ(batch.rows[kLength - 2].item<int64_t>(), kLength);
  EXPECT_EQ(batch.labels[1].item<int64_t>(), 1);
  EXPECT_EQ(batch.labels[2].item<int64_t>(), -1);
  EXPECT_EQ(batch.labels[kLength].item<int64_t>(), kLength - 2);
  EXPECT_EQ(batch.keys[5][1][3].item<float>(), HalfToFloat(set->sequence(2).kept.keys[5 * 32 + 16 + 3]));
}

TEST(MakeBatch, ReducedAndSoftTargets) {
  Rig rig;
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  const std::vector<int64_t> frequent = set->FrequentTokens(4);
  ASSERT_EQ(frequent.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(frequent));
  const std::vector<int> sequences = {1};
  const Batch hard = MakeBatch(*set, sequences, {}, {.distill = 0.0, .vocab = frequent});
  EXPECT_LT(hard.rows.numel(), kLength - 1);
  for (int64_t i = 0; i < hard.rows.numel(); ++i) {
    const auto next = static_cast<size_t>(hard.rows[i].item<int64_t>()) + 1;
    EXPECT_EQ(frequent[static_cast<size_t>(hard.targets.ids[i][0].item<int64_t>())], SequenceTokens(1)[next]);
  }
  const Batch soft = MakeBatch(*set, sequences, {}, {.distill = 0.25, .vocab = {}});
  EXPECT_EQ(soft.targets.ids.size(1), 1 + kTopK);
  EXPECT_NEAR(soft.targets.weights[0][0].item<double>(), 0.75, 1e-6);
  const at::Tensor sums = soft.targets.weights.sum(1);
  EXPECT_LT((sums - 1.0).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(soft.targets.ids[3][1].item<int64_t>(), set->sequence(1).top_ids[3 * kTopK]);
}

// Little text of one kind is not outvoted by much of another.
TEST(FeatureSet, FoldersCountAlikeForTheVocabulary) {
  std::vector<std::vector<int32_t>> much, little(1);
  for (int32_t i = 0; i < 40; ++i) much.push_back({20, 21, 22, 23, 24, 25, 26, 27});
  for (int32_t i = 0; i < 8; ++i) little[0].push_back(i % 2 == 0 ? 40 : 41);
  const Rig a(much), b(little);
  const std::vector<std::string> folders = {a.options.features.front(), b.options.features.front()};
  const auto set = FeatureSet::Open(folders);
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->FrequentTokens(3), (std::vector<int64_t>{21, 40, 41}));
  // What is never to be predicted comes after all that is, and as another text has it.
  const std::vector<int32_t> further = {300, 40, 200, 100};
  EXPECT_EQ(set->FrequentTokens(11, 0.0, further),
            (std::vector<int64_t>{21, 22, 23, 24, 25, 26, 27, 40, 41, 200, 300}));
}

// With final hidden states the target's share is theirs; a token that the head lacks leaves all to them.
TEST(MakeBatch, SoftTargetsFromHiddenStates) {
  const Rig rig({}, {kLength}, {}, testing::KeepAll(), 0);
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  EXPECT_TRUE(set->has_final_hidden());
  const std::vector<int> sequences = {1};
  const std::vector<int64_t> frequent = set->FrequentTokens(4, 0.25);
  const Batch batch = MakeBatch(*set, sequences, {.layers = {1}}, {.distill = 0.25, .vocab = frequent});
  ASSERT_EQ(batch.rows.numel(), kLength - 1);
  EXPECT_EQ(batch.targets.ids.size(1), 1);
  EXPECT_EQ(batch.hidden.at(1).size(1), 64);
  EXPECT_FALSE(batch.keys.defined());
  const auto& words = set->sequence(1).kept.final_hidden;
  for (const int64_t i : {0, 7, 30}) {
    const bool known = std::ranges::binary_search(frequent, SequenceTokens(1)[static_cast<size_t>(i) + 1]);
    EXPECT_EQ(batch.targets.weights[i][0].item<float>(), known ? 0.75F : 0.0F) << i;
    EXPECT_EQ(batch.targets.soft[i].item<float>(), known ? 0.25F : 1.0F) << i;
    EXPECT_EQ(batch.targets.states[i][5].item<float>(),
              BFloat16ToFloat(words[static_cast<size_t>(i) * 64 + 5]));
  }
  EXPECT_LT(batch.targets.weights.gt(0).sum().item<int64_t>(), kLength - 1);
}

TEST(FeatureSet, SaysWhatIsMissing) {
  const Rig rig({}, {kLength}, {}, {.kv = false, .hidden_layers = {1}});
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  EXPECT_TRUE(set->Has({.layers = {1}}).ok());
  EXPECT_THAT(set->Has({.keys_values = true}).message(), ::testing::HasSubstr("holds hidden:1"));
  EXPECT_THAT(set->Has({.final_hidden = true}).message(), ::testing::HasSubstr("needs final"));
  EXPECT_THAT(set->Has({.layers = {0, 1}}).message(), ::testing::HasSubstr("needs hidden:0"));
}

// A draft that reads nothing of the target and learns the tokens of a text needs no states of it.
TEST(MakeBatch, TokensAloneNeedNoStatesIfNothingReadsThem) {
  const Rig rig({}, {kLength}, {}, {.kv = false}, 0);
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok() && set->only_tokens());
  ASSERT_EQ(set->states(), nullptr);
  const std::vector<int> sequences = {1};
  const Batch batch = MakeBatch(*set, sequences, {}, {});
  EXPECT_EQ(batch.rows.numel(), kLength - 1);
  EXPECT_FALSE(batch.final_hidden.defined());
}

TEST(MakeBatch, SequencesArePacked) {
  const Rig rig({}, {48, 17, 30});
  const auto set = FeatureSet::Open(rig.options.features);
  ASSERT_TRUE(set.ok());
  const std::vector<int> sequences = {1, 2};
  const Batch batch = MakeBatch(*set, sequences, {.keys_values = true}, {});
  EXPECT_EQ(batch.ends, (Ends{17, 47}));
  EXPECT_EQ(batch.n(), 17 + 30);
  ASSERT_EQ(batch.rows.numel(), 16 + 29);
  EXPECT_EQ(batch.rows[15].item<int64_t>(), 15);
  EXPECT_EQ(batch.rows[16].item<int64_t>(), 17);
  EXPECT_EQ(batch.tokens[17].item<int64_t>(), SequenceTokens(2)[0]);
  EXPECT_EQ(batch.keys[17][0][0].item<float>(), HalfToFloat(set->sequence(2).kept.keys[0]));
}

}  // namespace
}  // namespace longspec::train
