// SPDX-License-Identifier: Apache-2.0
//
// How much is kept of what a draft made of texts, and what of it a sequence has.
#include "draft_model/draft_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <numeric>
#include <vector>

namespace longspec {
namespace {

constexpr size_t kChunksOfText = 10;

// A sequence of a text that is no other's.
std::unique_ptr<FullCache> Sequence(DraftKeys& keys, int32_t which) {
  std::vector<int32_t> tokens(kChunksOfText * kKvChunk);
  std::iota(tokens.begin(), tokens.end(), which * 10'000);
  auto cache = MakeFullCache(keys.pool(), static_cast<int>(tokens.size()));
  KvTransaction rows = *cache->Begin(static_cast<int>(tokens.size()));
  rows.CommitAll();
  keys.Keep(tokens, *cache);
  return cache;
}

DraftKeys Made(size_t most_chunks) {
  return {
      MakeHostPool({.k_type = CacheType::kF32, .v_type = CacheType::kF32, .n_kv_head = 1, .head_dim = 16}, 1),
      most_chunks};
}

TEST(DraftKeys, WhatSequencesHoldCountsToo) {
  for (const auto& [most, held] :
       {std::pair<size_t, size_t>{30, 30}, {25, 25}, {20, 20}, {19, 19}, {0, 18}}) {
    SCOPED_TRACE(most);
    DraftKeys keys = Made(most);
    Sequence(keys, 1);
    Sequence(keys, 2);
    const auto running = Sequence(keys, 3);
    EXPECT_EQ(keys.pool()->held(), held);
  }
}

// As a draft does that has read these positions.
void Store(SequenceKeys& keys, std::initializer_list<int> positions) {
  for (const int position : positions) keys.Wait(position);
  KvTransaction rows = *keys.cache().Begin(keys.n_waiting());
  rows.CommitAll();
  keys.MarkStored();
}

// Others find what was read up to the first position that was not, and nothing that only waited.
TEST(SequenceKeys, SharesABeginningWithoutGaps) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  const auto of_all =
      std::make_shared<DraftKeys>(MakeHostPool({.n_kv_head = 1, .head_dim = 16}, 1), kChunksOfText);
  std::vector<int32_t> text(8);
  std::iota(text.begin(), text.end(), 70);
  SequenceKeys first(of_all, 100), second(of_all, 100);
  Store(first, {0, 1, 2, 5, 6});
  first.Wait(7);
  EXPECT_THAT(first.stored(), ElementsAre(0, 1, 2, 5, 6));
  EXPECT_THAT(first.waiting(), ElementsAre(7));
  EXPECT_EQ(first.cache().length(), 5);
  first.Share(text);
  EXPECT_TRUE(second.Adopt(text));
  EXPECT_THAT(second.stored(), ElementsAre(0, 1, 2));
  EXPECT_EQ(second.cache().length(), 3);
  EXPECT_FALSE(second.Adopt(text));  // no more than that
  EXPECT_FALSE(first.Adopt(text));

  first.KeepBefore(7);
  EXPECT_THAT(first.stored(), ElementsAre(0, 1, 2, 5, 6));
  EXPECT_THAT(first.waiting(), IsEmpty());
  first.KeepBefore(3);
  EXPECT_THAT(first.stored(), ElementsAre(0, 1, 2));
  EXPECT_EQ(first.cache().length(), 3);
  Store(first, {3});
  EXPECT_EQ(first.cache().length(), 4);
}

}  // namespace
}  // namespace longspec
