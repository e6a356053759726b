// SPDX-License-Identifier: Apache-2.0
//
// A cache changes by transactions alone: commits keep a path, what is not committed leaves nothing.
#include "kv/full_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "attention/testing/store_row.h"
#include "base/testing/files.h"
#include "formats/testing/file_size_limit.h"

namespace longspec {
namespace {

constexpr int kLayers = 3, kHeads = 2, kDim = 32;

KvLayout Layout(CacheType k, CacheType v) {
  return {.k_type = k, .v_type = v, .n_kv_head = kHeads, .head_dim = kDim};
}

// A value that names its layer, head, token and dimension, exact in the floating-point types.
float ValueOf(int layer, int head, int token, int d) {
  return static_cast<float>((layer * 31 + head * 17 + token * 7 + d) % 128);
}

void StoreToken(const KvTransaction& rows, int slot, int token) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const KvWriter to = rows.Writer(layer);
    for (int head = 0; head < kHeads; ++head) {
      float k[kDim], v[kDim];
      for (int d = 0; d < kDim; ++d) {
        k[d] = ValueOf(layer, head, token, d);
        v[d] = -k[d];
      }
      testing::StoreRow(to, slot, head, k, v);
    }
  }
}

void Append(KvCache& cache, int token) {
  auto transaction = cache.Begin(1);
  ASSERT_TRUE(transaction.ok());
  StoreToken(*transaction, transaction->base(), token);
  transaction->CommitAll();
}

// The bytes of every layer must be those of a fresh cache into which only `tokens` were written.
void ExpectHolds(const KvCache& cache, const std::vector<int>& tokens) {
  ASSERT_EQ(cache.length(), static_cast<int>(tokens.size()));
  const KvLayout layout = cache.Span(0).layout;
  const auto fresh = MakeFullCache(layout, kLayers, 4096);
  for (const int token : tokens) Append(*fresh, token);
  const size_t row = layout.v_row_bytes();
  for (int layer = 0; layer < kLayers; ++layer) {
    const KvSpan a = cache.Span(layer), b = fresh->Span(layer);
    for (int head = 0; head < kHeads; ++head) {
      for (int slot = 0; slot < cache.length(); ++slot) {
        ASSERT_EQ(std::memcmp(a.value_row(slot, head), b.value_row(slot, head), row), 0) << slot;
        for (int d = 0; d < kDim; ++d) {
          ASSERT_EQ(a.KeyAt(slot, head, d), b.KeyAt(slot, head, d)) << slot << " " << d;
        }
      }
    }
  }
}

class FullCacheTest : public ::testing::TestWithParam<std::pair<CacheType, CacheType>> {
 protected:
  std::unique_ptr<KvCache> Make(int capacity) {
    return MakeFullCache(Layout(GetParam().first, GetParam().second), kLayers, capacity);
  }
};

TEST_P(FullCacheTest, CommitKeepsThePathAndForgetsTheRest) {
  const auto cache = Make(2000);
  std::vector<int> tokens;
  std::mt19937 rng(5);
  int next = 0;
  while (tokens.size() < 900) {
    const int n = std::uniform_int_distribution<int>(1, 40)(rng);
    auto transaction = cache->Begin(n);
    ASSERT_TRUE(transaction.ok());
    EXPECT_EQ(transaction->base(), static_cast<int>(tokens.size()));
    std::vector<int> drafted;
    std::vector<int32_t> kept;
    for (int i = 0; i < n; ++i) {
      drafted.push_back(next++);
      StoreToken(*transaction, transaction->base() + i, drafted.back());
      if (rng() % 3 == 0) kept.push_back(i);
    }
    transaction->Commit(kept);
    for (const int32_t row : kept) tokens.push_back(drafted[static_cast<size_t>(row)]);
  }
  ExpectHolds(*cache, tokens);
}

TEST_P(FullCacheTest, DestructionIsRollback) {
  const auto cache = Make(600);
  for (int i = 0; i < 250; ++i) Append(*cache, i);
  {
    auto transaction = cache->Begin(20);
    ASSERT_TRUE(transaction.ok());
    for (int i = 0; i < 20; ++i) StoreToken(*transaction, 250 + i, 1000 + i);
    EXPECT_EQ(cache->Span(0).n_speculated, 20);
  }
  std::vector<int> tokens(250);
  for (int i = 0; i < 250; ++i) tokens[static_cast<size_t>(i)] = i;
  ExpectHolds(*cache, tokens);
  Append(*cache, 7);
  tokens.push_back(7);
  ExpectHolds(*cache, tokens);
}

TEST_P(FullCacheTest, MemoryFollowsUse) {
  const auto cache = Make(5000);
  const size_t chunk = KvChunkBytes(Layout(GetParam().first, GetParam().second), kLayers);
  EXPECT_EQ(cache->bytes(), 0U);
  Append(*cache, 0);
  EXPECT_EQ(cache->bytes(), chunk);
  for (int i = 1; i <= 256; ++i) Append(*cache, i);
  EXPECT_EQ(cache->bytes(), 2 * chunk);
  cache->Truncate(256);
  EXPECT_EQ(cache->bytes(), chunk);
  cache->Truncate(0);
  EXPECT_EQ(cache->bytes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Types, FullCacheTest,
                         ::testing::Values(std::pair{CacheType::kF32, CacheType::kF32},
                                           std::pair{CacheType::kF16, CacheType::kF16},
                                           std::pair{CacheType::kBF16, CacheType::kF32},
                                           std::pair{CacheType::kBF16Amx, CacheType::kBF16Amx},
                                           std::pair{CacheType::kQ8_0, CacheType::kQ8_0},
                                           std::pair{CacheType::kQ4_0, CacheType::kQ4_0},
                                           std::pair{CacheType::kI8, CacheType::kI8},
                                           std::pair{CacheType::kQ8_0, CacheType::kF16}));

TEST(FullCache, AFullContextIsAnErrorWithTheNumbers) {
  const auto cache = MakeFullCache(Layout(CacheType::kF16, CacheType::kF16), kLayers, 10);
  for (int i = 0; i < 8; ++i) Append(*cache, i);
  const auto transaction = cache->Begin(3);
  ASSERT_FALSE(transaction.ok());
  EXPECT_EQ(transaction.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(transaction.status().message().find("8 of 10"), std::string::npos)
      << transaction.status().message();
  EXPECT_TRUE(cache->Begin(2).ok());
}

TEST(FullCacheDeathTest, OnlyOneTransactionAtATime) {
  const auto cache = MakeFullCache(Layout(CacheType::kF16, CacheType::kF16), kLayers, 10);
  auto first = cache->Begin(1);
  EXPECT_DEATH((void)cache->Begin(1).ok(), "transaction_open_");
}

static_assert(!std::is_copy_constructible_v<KvTransaction>);

// Those that nobody else holds.
int64_t OwnChunks(const FullCache& cache) {
  return std::ranges::count_if(cache.chunks(),
                               [](const KvChunkRef& chunk) { return chunk.use_count() == 1; });
}

TEST(FullCache, ForksHoldTheSameChunksAndGoTheirOwnWay) {
  const auto cache = MakeFullCache(Layout(CacheType::kF16, CacheType::kF32), kLayers, 1000);
  EXPECT_EQ(cache->Fork()->length(), 0);
  std::vector<int> tokens;
  for (int i = 0; i < 300; ++i) {
    tokens.push_back(i * 5 % 113);
    Append(*cache, tokens.back());
  }
  EXPECT_EQ(OwnChunks(*cache), 2);
  const auto fork = cache->Fork();
  EXPECT_EQ(cache->pool().held(), 2U) << "a fork takes no memory";
  EXPECT_EQ(OwnChunks(*cache), 0);
  Append(*cache, 1);
  Append(*fork, 2);
  EXPECT_EQ(cache->pool().held(), 3U) << "the chunk that is written was copied, the whole one was not";
  EXPECT_EQ(OwnChunks(*cache), 1);
  EXPECT_EQ(cache->chunks()[0], fork->chunks()[0]);
  EXPECT_NE(cache->chunks()[1], fork->chunks()[1]);
  tokens.push_back(2);
  ExpectHolds(*fork, tokens);
  tokens.back() = 1;
  ExpectHolds(*cache, tokens);
}

TEST(FullCache, AWholeChunkThatIsSharedIsNotWrittenEvenIfItIsCut) {
  const auto cache = MakeFullCache(Layout(CacheType::kF16, CacheType::kF16), kLayers, 1000);
  std::vector<int> tokens;
  for (int i = 0; i < 256; ++i) {
    tokens.push_back(i);
    Append(*cache, i);
  }
  const auto fork = cache->Fork();
  fork->Truncate(100);
  for (int i = 100; i < 140; ++i) Append(*fork, 1000 + i);
  ExpectHolds(*cache, tokens);
}

std::shared_ptr<ChunkPool> PoolOf(size_t n_chunks) {
  const KvLayout layout = Layout(CacheType::kF16, CacheType::kF16);
  const ChunkTier tier = {.memory = std::make_shared<HostMemory>(KvChunkBytes(layout, kLayers), n_chunks),
                          .most_chunks = n_chunks};
  return std::make_shared<ChunkPool>(layout, kLayers, std::vector{tier});
}

TEST(FullCache, APoolWithoutAChunkLeftIsAnErrorAndNothingIsLost) {
  const auto pool = PoolOf(2);
  const auto cache = MakeFullCache(pool, 10000);
  std::vector<int> tokens;
  for (int i = 0; i < 300; ++i) {
    tokens.push_back(i % 100);
    Append(*cache, tokens.back());
  }
  const auto fork = cache->Fork();
  EXPECT_EQ(pool->held(), 2U);
  const auto rows = fork->Begin(1);  // would have to copy
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(rows.status().message().find("all 2 chunks"), std::string::npos) << rows.status().message();
  ExpectHolds(*fork, tokens);
  ExpectHolds(*cache, tokens);
  fork->Truncate(0);
  Append(*cache, 5);
  tokens.push_back(5);
  ExpectHolds(*cache, tokens);
}

TEST(FullCache, WhatWasTakenBeforeAnErrorIsGivenBack) {
  const auto pool = PoolOf(2);
  const auto greedy = MakeFullCache(pool, 10000), modest = MakeFullCache(pool, 10000);
  EXPECT_EQ(greedy->Begin(600).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->held(), 0U);
  EXPECT_EQ(greedy->bytes(), 0U);
  Append(*modest, 5);
  // The chunk that a fork has to copy is shared as before.
  const auto fork = modest->Fork();
  EXPECT_EQ(fork->Begin(300).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->held(), 1U);
  ExpectHolds(*fork, {5});
  Append(*modest, 6);
  ExpectHolds(*modest, {5, 6});
  ExpectHolds(*fork, {5});
}

TEST(ChunkPool, ChunksOutliveTheirPool) {
  auto pool = MakeHostPool(Layout(CacheType::kF16, CacheType::kF16), kLayers);
  auto chunk = pool->Take();
  ASSERT_TRUE(chunk.ok());
  EXPECT_EQ(pool->held(), 1U);
  const size_t bytes = pool->chunk_bytes();
  pool.reset();
  std::memset((*chunk)->data(), 1, bytes);
}

// --- Chunks in a file. ---

// Some chunks in host memory, and the others in a file.
struct OffloadedPool {
  OffloadedPool(const KvLayout& layout, size_t in_memory)
      : host(std::make_shared<HostMemory>(KvChunkBytes(layout, kLayers), in_memory)),
        file(std::make_shared<FileMemory>(folder.path(), KvChunkBytes(layout, kLayers))),
        pool(std::make_shared<ChunkPool>(layout, kLayers,
                                         std::vector<ChunkTier>{{host, in_memory}, {.memory = file}})) {}

  const testing::Folder folder;
  const std::shared_ptr<HostMemory> host;
  const std::shared_ptr<FileMemory> file;
  const std::shared_ptr<ChunkPool> pool;
};

TEST(KvOffload, ChunksBeyondMemoryLieInAFileAndHoldTheSame) {
  const OffloadedPool of(Layout(CacheType::kF16, CacheType::kQ8_0), 2);
  const std::shared_ptr<ChunkPool>& pool = of.pool;
  const auto cache = MakeFullCache(pool, 4000);
  std::vector<int> tokens;
  for (int i = 0; i < 1100; ++i) {
    tokens.push_back(i % 100);
    Append(*cache, tokens.back());
    if (i == 511) {
      EXPECT_EQ(of.file->bytes(), 0U);
    }
  }
  EXPECT_GE(of.file->bytes(), 3 * pool->chunk_bytes());
  for (int layer = 0; layer < kLayers; ++layer) cache->Prefetch(layer);
  ExpectHolds(*cache, tokens);
  // It has no name: nothing is left of it, however the process ends.
  EXPECT_EQ(of.folder.n_files(), 0U);
  // A copy on write of a chunk that lies there, and parts that are used again.
  const auto fork = cache->Fork();
  std::vector<int> other(tokens.begin(), tokens.begin() + 900);
  fork->Truncate(900);
  for (int i = 0; i < 50; ++i) {
    other.push_back(7);
    Append(*fork, 7);
  }
  ExpectHolds(*fork, other);
  ExpectHolds(*cache, tokens);
  const uint64_t bytes = of.file->bytes();
  fork->Truncate(0);
  for (int i = 0; i < 256; ++i) Append(*fork, 3);
  EXPECT_EQ(of.file->bytes(), bytes);
  // Memory that was given back is used before the file.
  cache->Truncate(0);
  fork->Truncate(0);
  EXPECT_EQ(pool->held(), 0U);
  const size_t spare = of.host->spare();
  const auto chunk = pool->Take();
  EXPECT_EQ(of.host->spare(), spare - 1);
}

TEST(KvOffload, AFullDiskIsAnErrorAndNothingIsLost) {
  const OffloadedPool of(Layout(CacheType::kF16, CacheType::kF16), 1);
  const std::shared_ptr<ChunkPool>& pool = of.pool;
  const auto cache = MakeFullCache(pool, 4000);
  std::vector<int> tokens;
  for (int i = 0; i < 500; ++i) {
    tokens.push_back(i % 100);
    Append(*cache, tokens.back());
  }
  {
    const testing::FileSizeLimit limit(of.file->bytes() + 100);
    const auto rows = cache->Begin(30);
    ASSERT_FALSE(rows.ok());
    EXPECT_EQ(rows.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(rows.status().message().find(of.folder.path() + ": no room"), std::string::npos)
        << rows.status().message();
  }
  ExpectHolds(*cache, tokens);
  for (int i = 0; i < 300; ++i) {
    tokens.push_back(i % 90);
    Append(*cache, tokens.back());
  }
  ExpectHolds(*cache, tokens);
}

TEST(KvOffload, AFolderThatIsNotThereIsNamed) {
  const auto pool = MakeHostPool(Layout(CacheType::kF16, CacheType::kF16), kLayers,
                                 {.folder = "/nowhere/at/all", .memory_chunks = 0});
  const auto chunk = pool->Take();
  ASSERT_FALSE(chunk.ok());
  EXPECT_NE(chunk.status().message().find("/nowhere/at/all: no file can be made"), std::string::npos);
  EXPECT_EQ(pool->held(), 0U);
}

TEST(FullCache, MadeUpPositionsAreFiniteAndLeaveOthersAlone) {
  const auto cache = MakeFullCache(Layout(CacheType::kF16, CacheType::kF32), kLayers, 2000);
  std::vector<int> tokens = {3, 4, 5};
  for (const int token : tokens) Append(*cache, token);
  ASSERT_TRUE(CommitMadeUp(*cache, kLayers, 600).ok());
  EXPECT_EQ(cache->length(), 603);
  const KvSpan span = cache->Span(kLayers - 1);
  const auto* values = reinterpret_cast<const float*>(span.values(2, kHeads - 1));
  for (int i = 0; i < kDim; ++i) {
    EXPECT_GT(values[i], 0.0F);
    EXPECT_LT(values[i], 1.0F);
  }
  cache->Truncate(3);
  ExpectHolds(*cache, tokens);
  EXPECT_EQ(CommitMadeUp(*cache, kLayers, 5000).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace longspec
