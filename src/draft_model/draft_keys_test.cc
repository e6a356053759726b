// SPDX-License-Identifier: Apache-2.0
//
// How much is kept of what a draft made of texts.
#include "draft_model/draft_keys.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace longspec
