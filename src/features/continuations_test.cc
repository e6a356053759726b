// SPDX-License-Identifier: Apache-2.0
//
// What a tiny model writes itself: the tokens plain sampling gives, the features plain extraction gives,
// whatever is written beside it.
#include "features/continuations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "draft_model/testing/longspec_files.h"
#include "features/extract.h"
#include "model/testing/far_target.h"
#include "tensor/half.h"
#include "tensor/testing/values_of.h"

namespace longspec::testing {
namespace {

using Beginnings = std::vector<std::vector<int32_t>>;

struct ContinuationsRig {
  std::vector<WrittenContinuation> Write(const ContinuationOptions& options, const Beginnings& beginnings,
                                         int64_t first_index = 0) {
    const auto new_cache = [&] { return tiny.NewCache(512); };
    ContinuationWriter writer(&tiny.target(), new_cache, options);
    auto all = writer.Write(beginnings, first_index, [&](int n) {
      rows += n;
      most_rows = std::max(most_rows, n);
      return true;
    });
    EXPECT_TRUE(all.ok()) << all.status().message();
    return all.ok() ? std::move(all).value() : std::vector<WrittenContinuation>();
  }

  TinyTarget tiny{{.context_length = 512}};
  int rows = 0, most_rows = 0;  // of all passes, of one
};

Beginnings SomeBeginnings() {
  Beginnings all;
  for (int i = 0; i < 5; ++i) {
    all.emplace_back();
    for (int t = 0; t <= 9 * i; ++t) all.back().push_back(3 + (t * 37 + i * 11) % 250);
  }
  return all;
}

TEST(ContinuationWriter, WritesTheMostProbableAtTemperatureZero) {
  ContinuationsRig rig;
  const auto all =
      rig.Write({.max_tokens = 12, .temperatures = {0.0F}, .at_once = 2, .top_k = 3}, SomeBeginnings());
  ASSERT_EQ(all.size(), 5U);
  FeatureExtractor extractor(&rig.tiny.target(), rig.tiny.NewCache(512), 24, 3);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<int32_t>& tokens = all[i].tokens;
    const size_t begun = SomeBeginnings()[i].size();
    ASSERT_EQ(tokens.size(), begun + 12);
    const auto expected = extractor.Extract(tokens, [](int) { return true; });
    ASSERT_TRUE(expected.ok());
    EXPECT_EQ(all[i].features.kept.keys, expected->kept.keys);
    EXPECT_EQ(all[i].features.kept.values, expected->kept.values);
    EXPECT_EQ(all[i].features.positions, expected->positions);
    ASSERT_EQ(all[i].features.top_ids.size(), expected->top_ids.size());
    for (size_t t = begun - 1; t + 1 < tokens.size(); ++t) {
      EXPECT_EQ(tokens[t + 1], expected->top_ids[t * 3]);
      EXPECT_EQ(all[i].features.top_ids[t * 3 + 2], expected->top_ids[t * 3 + 2]);
      EXPECT_EQ(all[i].features.top_log_probs[t * 3], expected->top_log_probs[t * 3]);
    }
  }
  EXPECT_EQ(rig.rows, 1 + 10 + 19 + 28 + 37 + 5 * 12);
}

TEST(ContinuationWriter, ATargetElsewhereWritesTheSame) {
  ContinuationsRig rig;
  const auto keep = ParseFeatureKeep("final,hidden:1,kv", DType::kF16);
  ASSERT_TRUE(keep.ok());
  const ContinuationOptions options = {
      .max_tokens = 12, .temperatures = {0.7F}, .at_once = 2, .top_k = 3, .keep = *keep};
  const auto expected = rig.Write(options, SomeBeginnings());
  FarTarget far(&rig.tiny.target());
  const auto new_cache = [&] {
    return far.NewCache(rig.tiny.spec.kv_layout(CacheType::kF32, CacheType::kF32), 512);
  };
  ContinuationWriter writer(&far, new_cache, options);
  const auto all = writer.Write(SomeBeginnings(), 0, [](int) { return true; });
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_EQ(all->size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ((*all)[i].tokens, expected[i].tokens);
    const ExtractedFeatures &a = (*all)[i].features, &b = expected[i].features;
    EXPECT_EQ(a.kept.keys, b.kept.keys);
    EXPECT_EQ(a.kept.values, b.kept.values);
    EXPECT_EQ(a.kept.hidden, b.kept.hidden);
    EXPECT_EQ(a.kept.final_hidden, b.kept.final_hidden);
    EXPECT_EQ(a.top_ids, b.top_ids);
    EXPECT_EQ(a.top_log_probs, b.top_log_probs);
    EXPECT_FALSE(a.kept.keys.empty());
    EXPECT_FALSE(a.top_ids.empty());
  }
}

TEST(ContinuationWriter, BeginningsCanHaveProbabilitiesToo) {
  ContinuationsRig rig;
  const Beginnings beginnings = SomeBeginnings();
  const auto all = rig.Write({.max_tokens = 3, .top_k = 2, .beginning_logits = true, .rows = 7}, beginnings);
  FeatureExtractor extractor(&rig.tiny.target(), rig.tiny.NewCache(512), 24, 2);
  const auto expected = extractor.Extract(all[4].tokens, [](int) { return true; });
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(all[4].features.top_ids, expected->top_ids);
}

// What is kept of rows that came in chunks, beside others, is what one pass of the sequence alone taps.
TEST(ContinuationWriter, KeepsTheHiddenStatesThatAreNamed) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    ContinuationsRig rig;
    const auto keep = ParseFeatureKeep("final,hidden:1,hidden:0", type);
    ASSERT_TRUE(keep.ok());
    const auto all = rig.Write({.max_tokens = 5, .at_once = 3, .rows = 16, .keep = *keep}, SomeBeginnings());
    for (const WrittenContinuation& c : all) {
      const auto n = c.tokens.size();
      const auto cache = rig.tiny.NewCache(512);
      auto kv = cache->Begin(static_cast<int>(n));
      const Taps taps = {.hidden_layers = {0, 1}, .final_hidden = true};
      const ForwardSegment segment = {
          .tokens = c.tokens, .parents = {}, .kv = &*kv, .logits = LogitsFor::kNone, .taps = &taps};
      const auto output = rig.tiny.target().Forward({&segment, 1});
      ASSERT_TRUE(output.ok());
      const auto expected = [&](const StateRows& rows) {
        std::vector<uint16_t> halves;
        for (const float x : testing::ValuesOf(rows)) {
          halves.push_back(type == DType::kF16 ? FloatToHalf(x) : FloatToBFloat16(x));
        }
        return halves;
      };
      EXPECT_TRUE(c.features.kept.keys.empty());
      EXPECT_EQ(c.features.kept.final_hidden, expected(output->segments[0].final_hidden));
      ASSERT_EQ(c.features.kept.hidden.size(), 2U);
      EXPECT_EQ(c.features.kept.hidden[0], expected(output->segments[0].hidden[0]));
      EXPECT_EQ(c.features.kept.hidden[1], expected(output->segments[0].hidden[1]));
      EXPECT_NE(c.features.kept.hidden[0], c.features.kept.hidden[1]);
    }
  }
}

TEST(ContinuationWriter, IsAFunctionOfSeedAndIndex) {
  ContinuationsRig rig;
  const Beginnings beginnings = SomeBeginnings();
  const ContinuationOptions options = {
      .max_tokens = 20, .temperatures = {0.0F, 2.0F}, .seed = 5, .at_once = 1};
  const auto one = rig.Write(options, beginnings, 10);
  ContinuationOptions many = options;
  many.at_once = 4;
  const auto four = rig.Write(many, beginnings, 10);
  const auto last = rig.Write(many, {beginnings[3]}, 13);
  many.seed = 6;
  const auto other = rig.Write(many, beginnings, 10);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].tokens, four[i].tokens);
    // The sequences of odd index are drawn.
    EXPECT_EQ(one[i].tokens == other[i].tokens, i % 2 == 0) << i;
  }
  EXPECT_EQ(one[3].tokens, last[0].tokens);
}

TEST(ContinuationWriter, PassesDoNotDecideWhatIsWritten) {
  for (const bool logits : {false, true}) {
    ContinuationOptions options = {
        .max_tokens = 11, .temperatures = {1.0F}, .at_once = 1, .top_k = 2, .beginning_logits = logits};
    ContinuationsRig alone;
    const auto expected = alone.Write(options, SomeBeginnings());
    EXPECT_EQ(alone.most_rows, logits ? kFeatureRowsWithLogits : 37);
    for (const int rows : {3, 20, 512}) {
      options.rows = rows;
      options.at_once = 5;
      ContinuationsRig rig;
      const auto all = rig.Write(options, SomeBeginnings());
      EXPECT_EQ(rig.most_rows, std::min(rows, logits ? kFeatureRowsWithLogits : 95));
      EXPECT_EQ(rig.rows, alone.rows);
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].tokens, expected[i].tokens);
        EXPECT_EQ(all[i].features.positions.size(), all[i].tokens.size());
        EXPECT_EQ(all[i].features.kept.keys, expected[i].features.kept.keys);
        EXPECT_EQ(all[i].features.kept.values, expected[i].features.kept.values);
        EXPECT_EQ(all[i].features.top_ids, expected[i].features.top_ids);
        EXPECT_EQ(all[i].features.top_log_probs, expected[i].features.top_log_probs);
      }
    }
  }
}

TEST(ContinuationWriter, FillsItsCachesToTheLastPosition) {
  ContinuationsRig rig;
  const auto all = rig.Write({.max_tokens = 12, .at_once = 1}, {std::vector<int32_t>(500, 7)});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].tokens.size(), 512U);
  EXPECT_EQ(all[0].features.positions.size(), 512U);
}

TEST(ContinuationWriter, StopsAtTheEndToken) {
  ContinuationsRig rig;
  const auto whole = rig.Write({.max_tokens = 12, .temperatures = {0.0F}}, SomeBeginnings());
  const int32_t end = whole[2].tokens[19 + 4];
  const auto ended = rig.Write(
      {.max_tokens = 12, .temperatures = {0.0F}, .ends = [end](int32_t token) { return token == end; }},
      SomeBeginnings());
  const auto first = std::find(whole[2].tokens.begin() + 19, whole[2].tokens.end(), end);
  EXPECT_EQ(ended[2].tokens, std::vector<int32_t>(whole[2].tokens.begin(), first + 1));
}

TEST(ContinuationWriter, CanBeStopped) {
  ContinuationsRig rig;
  ContinuationWriter writer(&rig.tiny.target(), [&] { return rig.tiny.NewCache(512); }, {.max_tokens = 9});
  for (const int passes : {1, 7}) {
    int left = passes;
    const auto all = writer.Write(SomeBeginnings(), 0, [&](int) { return --left > 0; });
    EXPECT_EQ(all.status().code(), StatusCode::kCancelled);
  }
  EXPECT_TRUE(
      writer.Write(SomeBeginnings(), 0, [](int) { return true; }).ok());  // its caches are empty again
}

}  // namespace
}  // namespace longspec::testing
