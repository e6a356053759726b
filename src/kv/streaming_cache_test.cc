// SPDX-License-Identifier: Apache-2.0
//
// A window with sinks keeps what it should, in memory that does not grow.
#include "kv/streaming_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "attention/testing/store_row.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

constexpr int kLayers = 2, kHeads = 2, kDim = 32;

KvLayout Layout(CacheType type = CacheType::kF32) {
  return {.k_type = type, .v_type = type, .n_kv_head = kHeads, .head_dim = kDim};
}

// A value that names its token, layer, head and dimension.
float ValueOf(int token, int layer, int head, int d) {
  return static_cast<float>(token * 256 + layer * 128 + head * 64 + d);
}

void Store(const KvTransaction& rows, int slot, int token) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const KvWriter to = rows.Writer(layer);
    for (int head = 0; head < kHeads; ++head) {
      float k[kDim], v[kDim];
      for (int d = 0; d < kDim; ++d) {
        k[d] = ValueOf(token, layer, head, d);
        v[d] = -k[d];
      }
      testing::StoreRow(to, slot, head, k, v);
    }
  }
}

// Which token's keys and values the slot holds, in every layer and head.
int TokenAt(const KvCache& cache, int slot) {
  const int token = static_cast<int>(cache.Span(0).KeyAt(slot, 0, 0)) / 256;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      for (int d = 0; d < kDim; ++d) {
        EXPECT_EQ(cache.Span(layer).KeyAt(slot, head, d), ValueOf(token, layer, head, d)) << slot;
        EXPECT_EQ(cache.Span(layer).ValueAt(slot, head, d), -ValueOf(token, layer, head, d)) << slot;
      }
    }
  }
  return token;
}

std::multiset<int> Held(const KvCache& cache) {
  std::multiset<int> held;
  for (int slot = 0; slot < cache.n_slots(); ++slot) held.insert(TokenAt(cache, slot));
  return held;
}

// Speculates rows with these tokens and commits some of them.
void Step(KvCache& cache, const std::vector<int>& tokens, const std::vector<int32_t>& kept) {
  auto rows = cache.Begin(static_cast<int>(tokens.size()));
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ(rows->base(), cache.length());
  EXPECT_EQ(rows->slot(), cache.n_slots());
  EXPECT_EQ(cache.Span(0).n_speculated, static_cast<int>(tokens.size()));
  for (size_t i = 0; i < tokens.size(); ++i) Store(*rows, rows->slot() + static_cast<int>(i), tokens[i]);
  rows->Commit(kept);
}

void Append(KvCache& cache, int token) { Step(cache, {token}, {0}); }

// Of a sequence, what a cache of `sink` and `window` still holds if its oldest recent position is `oldest`.
std::multiset<int> Expected(const std::vector<int>& sequence, int sink, int window, int oldest = 0) {
  std::multiset<int> expected;
  const auto n = static_cast<int>(sequence.size());
  for (int p = 0; p < n; ++p) {
    if (p < sink || (p >= n - window && p >= oldest)) expected.insert(sequence[static_cast<size_t>(p)]);
  }
  return expected;
}

TEST(StreamingCache, KeepsSinksAndTheLastPositions) {
  for (const auto& [sink, window] : {std::pair{4, 20}, {0, 7}, {3, 1}, {4, 300}}) {
    const auto cache = MakeStreamingCache(MakeHostPool(Layout(), kLayers), sink, window);
    std::vector<int> sequence;
    std::mt19937 rng(3);
    int next = 0;
    for (int round = 0; round < 60; ++round) {
      // Sometimes more rows than the window holds.
      const int n = 1 + static_cast<int>(rng() % 12) + (round % 20 == 0 ? window : 0);
      std::vector<int> tokens;
      std::vector<int32_t> kept;
      for (int i = 0; i < n; ++i) {
        tokens.push_back(next++);
        if (rng() % 3 != 0) kept.push_back(i);
      }
      ASSERT_NO_FATAL_FAILURE(Step(*cache, tokens, kept));
      for (const int32_t row : kept) sequence.push_back(tokens[static_cast<size_t>(row)]);
      ASSERT_EQ(cache->length(), static_cast<int>(sequence.size()));
      ASSERT_LE(cache->n_slots(), sink + window);
      ASSERT_EQ(Held(*cache), Expected(sequence, sink, window)) << sink << " " << window << " " << round;
      for (int p = 0; p < std::min(sink, cache->length()); ++p) {
        ASSERT_EQ(TokenAt(*cache, p), sequence[static_cast<size_t>(p)]);
      }
    }
  }
}

TEST(StreamingCache, SlotsArePositionsWhileNothingIsForgotten) {
  const auto cache = MakeStreamingCache(MakeHostPool(Layout(), kLayers), 4, 10);
  EXPECT_EQ(cache->exactness(), Exactness::kApproximate);
  EXPECT_GT(cache->capacity(), 1 << 30);
  for (int i = 0; i < 14; ++i) {
    Append(*cache, i);
    EXPECT_EQ(cache->n_slots(), i + 1);
    EXPECT_EQ(cache->Span(1).n_committed, i + 1);
    for (int slot = 0; slot <= i; ++slot) EXPECT_EQ(TokenAt(*cache, slot), slot);
  }
  Append(*cache, 14);
  EXPECT_EQ(cache->n_slots(), 14);
  EXPECT_EQ(TokenAt(*cache, 4), 14);  // in the place of the oldest
}

TEST(StreamingCache, DestructionIsRollback) {
  const auto cache = MakeStreamingCache(MakeHostPool(Layout(), kLayers), 2, 5);
  for (int i = 0; i < 30; ++i) Append(*cache, i);
  const auto before = Held(*cache);
  {
    auto rows = cache->Begin(3);
    ASSERT_TRUE(rows.ok());
    EXPECT_EQ(rows->base(), 30);
    EXPECT_EQ(rows->slot(), 7);
    for (int i = 0; i < 3; ++i) Store(*rows, rows->slot() + i, 99);
  }
  EXPECT_EQ(Held(*cache), before);
  EXPECT_EQ(cache->length(), 30);
  EXPECT_EQ(cache->Span(0).n_speculated, 0);
}

TEST(StreamingCache, MemoryDoesNotGrow) {
  const auto cache = MakeStreamingCache(MakeHostPool(Layout(), kLayers), 4, 100);
  for (int i = 0; i < 200; ++i) Append(*cache, i);
  const size_t bytes = cache->bytes();
  EXPECT_GT(bytes, 0U);
  for (int i = 200; i < 2000; ++i) Append(*cache, i);
  EXPECT_EQ(cache->bytes(), bytes);
}

TEST(StreamingCache, TruncateForgetsTheNewestAndBringsNothingBack) {
  for (const auto& [sink, window] : {std::pair{3, 12}, {0, 9}, {2, 1}}) {
    std::mt19937 rng(17);
    for (int round = 0; round < 40; ++round) {
      const auto cache = MakeStreamingCache(MakeHostPool(Layout(), kLayers), sink, window);
      std::vector<int> sequence;
      int oldest = 0, next = 0;
      for (int cut = 0; cut < 4; ++cut) {
        for (int n = static_cast<int>(rng() % 30); n > 0; --n) {
          Append(*cache, next);
          sequence.push_back(next++);
        }
        oldest = std::max(oldest, cache->length() - window);
        const int length = cache->length() - static_cast<int>(rng() % static_cast<unsigned>(window + 3));
        cache->Truncate(std::max(0, length));
        sequence.resize(static_cast<size_t>(std::max(0, length)));
        ASSERT_EQ(cache->length(), static_cast<int>(sequence.size()));
        oldest = std::min(oldest, std::max(sink, cache->length()));
        ASSERT_EQ(Held(*cache), Expected(sequence, sink, window, oldest)) << sink << " " << window;
      }
    }
  }
}

TEST(StreamingCache, FollowingIsCopyingExactly) {
  for (const CacheType type :
       {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    const auto source = MakeFullCache(Layout(type), kLayers, 4096);
    const auto cache = MakeStreamingCache(MakeHostPool(Layout(type), kLayers), 4, 30);
    std::mt19937 rng(29);
    int next = 0;
    while (source->length() < 700) {
      for (int n = 1 + static_cast<int>(rng() % 9); n > 0; --n) Append(*source, next++);
      ASSERT_TRUE(cache->Follow(*source).ok());
      ASSERT_EQ(cache->length(), source->length());
      // The same as a cache that never drafted.
      const auto fresh = MakeStreamingCache(MakeHostPool(Layout(type), kLayers), 4, 30);
      ASSERT_TRUE(fresh->Follow(*source).ok());
      ASSERT_EQ(cache->n_slots(), fresh->n_slots());
      if (type == CacheType::kF32) {
        std::vector<int> sequence(static_cast<size_t>(next));
        for (int i = 0; i < next; ++i) sequence[static_cast<size_t>(i)] = i;
        ASSERT_EQ(Held(*cache), Expected(sequence, 4, 30));
        for (int slot = 0; slot < cache->n_slots(); ++slot) {
          ASSERT_EQ(TokenAt(*cache, slot), TokenAt(*fresh, slot)) << slot;
        }
      }
      const KvSpan held = cache->Span(1), expected = fresh->Span(1);
      for (int slot = 0; slot < cache->n_slots(); ++slot) {
        ASSERT_EQ(
            std::memcmp(held.value_row(slot, 1), expected.value_row(slot, 1), held.layout.v_row_bytes()), 0);
        for (int d = 0; d < kDim; ++d) ASSERT_EQ(held.KeyAt(slot, 1, d), expected.KeyAt(slot, 1, d));
      }
      // Drafting: rows of its own, after and in the place of the followed ones.
      for (int n = static_cast<int>(rng() % 6); n > 0; --n) Append(*cache, 5000 + next);
    }
  }
}

TEST(StreamingCache, FollowingCopiesOnlyWhatIsNew) {
  const auto source = MakeFullCache(Layout(), kLayers, 4096);
  for (int i = 0; i < 20; ++i) Append(*source, i);
  const auto cache = MakeStreamingCache(MakeHostPool(Layout(), kLayers), 2, 10);
  ASSERT_TRUE(cache->Follow(*source).ok());
  {
    const auto rows = cache->Begin(1);
    ASSERT_TRUE(rows.ok());
    Store(*rows, 5, 77);  // behind its back
  }
  Append(*source, 20);
  ASSERT_TRUE(cache->Follow(*source).ok());
  EXPECT_EQ(TokenAt(*cache, 5), 77);
  cache->Truncate(0);
  ASSERT_TRUE(cache->Follow(*source).ok());
  EXPECT_NE(TokenAt(*cache, 5), 77);
}

TEST(StreamingCache, FollowsASourceThatWasCutOrReplaced) {
  const auto source = MakeFullCache(Layout(), kLayers, 4096);
  const auto cache = MakeStreamingCache(MakeHostPool(Layout(), kLayers), 2, 10);
  for (int i = 0; i < 50; ++i) Append(*source, i);
  ASSERT_TRUE(cache->Follow(*source).ok());
  cache->Truncate(45);  // the ring is turned
  ASSERT_TRUE(cache->Follow(*source).ok());
  std::vector<int> sequence(50);
  for (int i = 0; i < 50; ++i) sequence[static_cast<size_t>(i)] = i;
  EXPECT_EQ(Held(*cache), Expected(sequence, 2, 10));
  cache->Truncate(0);
  source->Truncate(1);
  for (int i = 1; i < 9; ++i) Append(*source, 100 + i);
  ASSERT_TRUE(cache->Follow(*source).ok());
  EXPECT_EQ(Held(*cache), (std::multiset<int>{0, 101, 102, 103, 104, 105, 106, 107, 108}));
}

}  // namespace
}  // namespace longspec
