// SPDX-License-Identifier: Apache-2.0
//
// How much is kept of what a draft made of texts.
#include "draft_model/draft_states.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

namespace longspec {
namespace {

constexpr size_t kChunksOfText = 10;

// A sequence of a text that is no other's.
std::unique_ptr<FullCache> Sequence(DraftStates& states, int32_t which) {
  std::vector<int32_t> tokens(kChunksOfText * kKvChunk);
  std::iota(tokens.begin(), tokens.end(), which * 10'000);
  auto cache = MakeFullCache(states.pool(), static_cast<int>(tokens.size()));
  KvTransaction rows = *cache->Begin(static_cast<int>(tokens.size()));
  rows.CommitAll();
  states.Keep(tokens, *cache);
  return cache;
}

DraftStates Made(size_t most_chunks) {
  return {KvLayout{.k_type = CacheType::kF32, .v_type = CacheType::kF32, .n_kv_head = 1, .head_dim = 16}, 1,
          most_chunks};
}

TEST(DraftStates, WhatSequencesHoldCountsToo) {
  for (const auto& [most, held] :
       {std::pair<size_t, size_t>{30, 30}, {25, 25}, {20, 20}, {19, 19}, {0, 18}}) {
    SCOPED_TRACE(most);
    DraftStates states = Made(most);
    Sequence(states, 1);
    Sequence(states, 2);
    const auto running = Sequence(states, 3);
    EXPECT_EQ(states.pool()->held(), held);
  }
}

}  // namespace
}  // namespace longspec
