// SPDX-License-Identifier: Apache-2.0
//
// SpecExtend's cache against its rules, with keys whose rotation is known.
#include "kv/reindexed_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "attention/testing/store_row.h"
#include "kernels/tables.h"

namespace longspec {
namespace {

constexpr int kLayers = 2, kHeads = 2, kDim = 32, kRot = 16;

KvLayout Layout() {
  return {.k_type = CacheType::kF32, .v_type = CacheType::kF16, .n_kv_head = kHeads, .head_dim = kDim};
}

// With a factor, as YaRN has one.
constexpr float kMagnitude = 1.25F;
void Turn(int position, float* cos_sin) {
  for (int i = 0; i < kRot / 2; ++i) {
    const double angle = position * std::pow(100.0, -2.0 * i / kRot);
    cos_sin[2 * i] = kMagnitude * static_cast<float>(std::cos(angle));
    cos_sin[2 * i + 1] = kMagnitude * static_cast<float>(std::sin(angle));
  }
}

Rotary SomeRotary(kernels::RopePairing pairing) {
  return {.kernels = &kernels::kReferenceTable,
          .pairing = pairing,
          .n_rot = kRot,
          .magnitude = static_cast<double>(kMagnitude),
          .row = Turn};
}

// Element d of a position's key, not rotated, and of its value.
float KeyOf(int position, int layer, int head, int d) {
  return std::sin(static_cast<float>(position * 7 + layer * 3 + head * 5 + d));
}
float ValueOf(int position, int layer, int head, int d) {
  return static_cast<float>((position * 3 + layer * 31 + head * 17 + d) % 64);
}

// Rows of the positions after the cache's, as a forward pass would write them: rotated by where they stand.
KvTransaction Speculate(ReindexedCache& cache, int n, kernels::RopePairing pairing) {
  auto rows = cache.Begin(n);
  EXPECT_TRUE(rows.ok());
  EXPECT_EQ(rows->base(), rows->slot());
  for (int i = 0; i < n; ++i) {
    const int slot = rows->slot() + i, position = cache.length() + i;
    float turn[kRot];
    Turn(rows->base() + i, turn);
    for (int layer = 0; layer < kLayers; ++layer) {
      const KvWriter to = rows->Writer(layer);
      for (int head = 0; head < kHeads; ++head) {
        float k[kDim], v[kDim];
        for (int d = 0; d < kDim; ++d) {
          k[d] = KeyOf(position, layer, head, d);
          v[d] = ValueOf(position, layer, head, d);
        }
        kernels::kReferenceTable.rope(k, kRot, turn, pairing);
        testing::StoreRow(to, slot, head, k, v);
      }
    }
  }
  return std::move(*rows);
}

void Grow(ReindexedCache& cache, int n, kernels::RopePairing pairing = kernels::RopePairing::kAdjacent) {
  Speculate(cache, n, pairing).CommitAll();
}

// Every slot holds the position that its chunk says, rotated to the slot.
void ExpectHolds(ReindexedCache& cache, const std::vector<int>& chunks, int chunk,
                 kernels::RopePairing pairing = kernels::RopePairing::kAdjacent) {
  ASSERT_TRUE(cache.set().Follow().ok());
  EXPECT_EQ(std::vector<int>(cache.set().chunks().begin(), cache.set().chunks().end()), chunks);
  int slot = 0;
  for (const int c : chunks) {
    for (int p = c * chunk; p < std::min((c + 1) * chunk, cache.length()); ++p, ++slot) {
      float turn[kRot];
      Turn(slot, turn);
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          float k[kDim];
          for (int d = 0; d < kDim; ++d) k[d] = KeyOf(p, layer, head, d);
          kernels::kReferenceTable.rope(k, kRot, turn, pairing);
          for (int d = 0; d < kDim; ++d) {
            ASSERT_NEAR(cache.Span(layer).KeyAt(slot, head, d), k[d], 1e-5)
                << p << " in " << slot << " " << d;
            ASSERT_EQ(cache.Span(layer).ValueAt(slot, head, d), ValueOf(p, layer, head, d)) << p;
          }
        }
      }
    }
  }
  EXPECT_EQ(cache.n_slots(), slot);
  EXPECT_EQ(cache.next_position(), slot);
}

std::vector<int> UpTo(int n) {
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::unique_ptr<ReindexedCache> NewCache(kernels::RopePairing pairing, const ReindexOptions& options) {
  return MakeReindexedCache(MakeHostPool(Layout(), kLayers), SomeRotary(pairing), options,
                            MakeHostPool(ReindexedStoreLayout(Layout()), kLayers));
}

constexpr ReindexOptions kSmall = {.chunk = 8, .n_chunks = 3};

TEST(ReindexedCache, HoldsEverythingUntilItChooses) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  Grow(*cache, 20);
  Grow(*cache, 1);
  ExpectHolds(*cache, UpTo(3), 8);
}

TEST(ReindexedCache, ChoosesChunksByTheirMeanAndTurnsKeysToTheirSlots) {
  for (const auto pairing : {kernels::RopePairing::kAdjacent, kernels::RopePairing::kHalfSplit}) {
    const auto cache = NewCache(pairing, kSmall);
    Grow(*cache, 100, pairing);
    // Chunks 1 and 4 lead, then 7 and 9 are equal; 12 is the newest, and not whole.
    std::vector<float> scores(99, 0.0F);
    for (int p = 8; p < 16; ++p) scores[static_cast<size_t>(p)] = 1;
    scores[33] = 5;
    scores[60] = scores[75] = 2;
    ASSERT_TRUE(cache->set().Choose(scores).ok());
    ExpectHolds(*cache, {1, 4, 7, 12}, 8, pairing);
    // What is written next enters the newest chunk, and then new ones.
    Grow(*cache, 3, pairing);
    ExpectHolds(*cache, {1, 4, 7, 12}, 8, pairing);
    Grow(*cache, 6, pairing);
    ExpectHolds(*cache, {1, 4, 7, 12, 13}, 8, pairing);
    // A mean is over the positions a chunk has: the newest, of five, wins with one good one.
    scores.assign(109, 0.01F);
    scores[105] = 6;
    scores[3] = 7;
    ASSERT_TRUE(cache->set().Choose(scores).ok());
    ExpectHolds(*cache, {0, 1, 13}, 8, pairing);
  }
}

// SpecExtend's own example: means of .085, .05, .015, .075 and, of the last one that is not whole, .033.
// The newest chunk is there whatever its score is.
TEST(ReindexedCache, ChoosesWhatSpecExtendsExampleSays) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, {.chunk = 4, .n_chunks = 3});
  Grow(*cache, 19);
  const std::vector<float> scores = {.30F, .02F, .01F, .01F, .05F, .05F, .05F, .05F, .01F,
                                     .01F, .02F, .02F, .10F, .10F, .05F, .05F, .05F, .05F};
  ASSERT_TRUE(cache->set().Choose(scores).ok());
  ExpectHolds(*cache, {0, 1, 3, 4}, 4);
}

// As a running sum in half precision has it, of which the authors' code takes differences.
double RoundToHalf(double x) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 11)), exponent - 11);
}

// Of 16,000 positions that are looked at alike, a chunk with a tenth more is found; differences of sums in
// half precision lose it in their rounding.
TEST(ReindexedCache, ALittleMoreIsFoundFarBackInALongText) {
  constexpr int kPositions = 16000, kChunk = 32, kMore = 450;
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, {.chunk = kChunk, .n_chunks = 1});
  for (int i = 0; i < 10; ++i) Grow(*cache, kPositions / 10);
  std::vector<float> scores(kPositions, 1.0F / kPositions);
  for (int p = kMore * kChunk; p < (kMore + 1) * kChunk; ++p) scores[static_cast<size_t>(p)] *= 1.1F;
  ASSERT_TRUE(cache->set().Choose(scores).ok());
  EXPECT_EQ(std::vector<int>(cache->set().chunks().begin(), cache->set().chunks().end()),
            (std::vector<int>{kMore, kPositions / kChunk - 1}));
  double sum = 0, before = 0, most = 0;
  int best = 0;
  for (int chunk = 0; chunk < kPositions / kChunk; ++chunk) {
    for (int i = 0; i < kChunk; ++i)
      sum += static_cast<double>(scores[static_cast<size_t>(chunk * kChunk + i)]);
    const double mass = RoundToHalf(sum) - before;
    before = RoundToHalf(sum);
    if (mass > most) best = chunk;
    most = std::max(most, mass);
  }
  EXPECT_NE(best, kMore);
}

// A text that is cut sees the chunks that it saw at that length; where the set has not the newest chunk any
// more, it sees the last ones.
TEST(ReindexedCache, GoesBack) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  Grow(*cache, 90);
  std::vector<float> scores(90, 0.0F);
  scores[20] = 1;
  scores[50] = 1;
  scores[70] = 1;
  ASSERT_TRUE(cache->set().Choose(scores).ok());
  ExpectHolds(*cache, {2, 6, 8, 11}, 8);
  Grow(*cache, 9);
  ExpectHolds(*cache, {2, 6, 8, 11, 12}, 8);
  cache->Truncate(90);
  ExpectHolds(*cache, {2, 6, 8, 11}, 8);
  cache->Truncate(85);  // the newest chunk is then 10, which the set has not: the last ones are seen
  Grow(*cache, 1);
  ExpectHolds(*cache, {8, 9, 10}, 8);
  cache->Truncate(0);
  EXPECT_EQ(cache->n_slots(), 0);
  Grow(*cache, 5);
  ExpectHolds(*cache, {0}, 8);
}

TEST(ReindexedCache, HoldsTheLastChunks) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  ASSERT_TRUE(cache->set().HoldLast(2).ok());
  EXPECT_EQ(cache->n_slots(), 0);
  Grow(*cache, 90);
  ASSERT_TRUE(cache->set().HoldLast(2).ok());
  ExpectHolds(*cache, {10, 11}, 8);
  Grow(*cache, 8);
  ExpectHolds(*cache, {10, 11, 12}, 8);
  ASSERT_TRUE(cache->set().HoldLast(100).ok());
  ExpectHolds(*cache, UpTo(13), 8);
  // Cut to before what is held: the next call makes it the last chunks.
  ASSERT_TRUE(cache->set().HoldLast(1).ok());
  cache->Truncate(50);
  ExpectHolds(*cache, {4, 5, 6}, 8);
}

TEST(ReindexedCache, DestructionIsRollback) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  Grow(*cache, 30);
  { const auto rows = Speculate(*cache, 12, kernels::RopePairing::kAdjacent); }
  EXPECT_EQ(cache->length(), 30);
  ExpectHolds(*cache, UpTo(4), 8);
}

// Rows of a piece of a prompt see a window of those before it, however much of it was read at once.
TEST(ReindexedCache, HoldsWhatComesFromAChunkOn) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(cache->set().HoldFrom(std::max(0, 4 * i - 6)).ok());
    Grow(*cache, 32);
  }
  EXPECT_EQ(cache->length(), 192);
  std::vector<int> last;
  for (int c = 14; c < 24; ++c) last.push_back(c);
  ExpectHolds(*cache, last, 8);  // 6 chunks of the window, and 4 of the last piece
  Grow(*cache, 20);
  EXPECT_EQ(cache->n_slots(), 100);
}

// Bit for bit, whether a text was written in one way or the other, or taken over from who had it first.
TEST(ReindexedCache, WhatItHoldsDependsOnTheStoreAlone) {
  for (const CacheType type :
       {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    KvLayout layout = Layout();
    layout.k_type = type;
    const auto store = MakeHostPool(ReindexedStoreLayout(layout), kLayers);
    const auto make = [&] {
      return MakeReindexedCache(MakeHostPool(layout, kLayers), SomeRotary(kernels::RopePairing::kAdjacent),
                                kSmall, store);
    };
    const auto first = make(), second = make();
    for (int i = 0; i < 10; ++i) {
      Grow(*first, 30);
      ASSERT_TRUE(first->set().HoldLast(3 + i % 2).ok());
    }
    second->store().Adopt(first->store().chunks(), 300);
    std::vector<float> scores(300, 0.0F);
    scores[20] = scores[50] = scores[70] = 1;
    ASSERT_TRUE(first->set().Choose(scores).ok());
    ASSERT_TRUE(second->set().Choose(scores).ok());
    ASSERT_EQ(second->n_slots(), first->n_slots());
    for (int slot = 0; slot < first->n_slots(); ++slot) {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          const KvSpan a = first->Span(layer), b = second->Span(layer);
          for (int d = 0; d < kDim; ++d) {
            ASSERT_EQ(a.KeyAt(slot, head, d), b.KeyAt(slot, head, d)) << slot << " " << d;
            ASSERT_EQ(a.ValueAt(slot, head, d), b.ValueAt(slot, head, d));
          }
        }
      }
    }
  }
}

// However long a prompt is, and whatever scores say, until it is to choose.
TEST(ReindexedCache, SeesAllIfItIsToldTo) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  ASSERT_TRUE(cache->set().SeeAll(true).ok());
  for (int i = 0; i < 6; ++i) Grow(*cache, 32);
  ExpectHolds(*cache, UpTo(24), 8);
  std::vector<float> scores(192, 0.0F);
  scores[20] = scores[50] = scores[70] = 1;
  ASSERT_TRUE(cache->set().Choose(scores).ok());
  ASSERT_TRUE(cache->set().HoldLast(1).ok());
  ExpectHolds(*cache, UpTo(24), 8);
  cache->Truncate(90);
  ExpectHolds(*cache, UpTo(12), 8);
  ASSERT_TRUE(cache->set().SeeAll(false).ok());
  ExpectHolds(*cache, {9, 10, 11}, 8);
  ASSERT_TRUE(cache->set().Choose(scores).ok());
  ExpectHolds(*cache, {2, 6, 8, 11}, 8);
  // What was never in the set at once is there, too.
  Grow(*cache, 6);
  Grow(*cache, 50);
  ASSERT_TRUE(cache->set().SeeAll(true).ok());
  ExpectHolds(*cache, UpTo(19), 8);
}

TEST(ReindexedCache, ManyChoicesLoseNothing) {
  std::mt19937 rng(5);
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  Grow(*cache, 200);
  std::uniform_real_distribution<float> score(0, 1);
  for (int i = 0; i < 20; ++i) {
    std::vector<float> scores(static_cast<size_t>(cache->length()));
    for (float& s : scores) s = score(rng);
    ASSERT_TRUE(cache->set().Choose(scores).ok());
    std::map<int, double> mean;
    for (int p = 0; p < cache->length(); ++p) {
      const int in_chunk = std::min(8, cache->length() - p / 8 * 8);
      mean[p / 8] += static_cast<double>(scores[static_cast<size_t>(p)]) / in_chunk;
    }
    std::vector<int> best = UpTo(static_cast<int>(mean.size()));
    std::ranges::stable_sort(best, [&](int a, int b) { return mean[a] > mean[b]; });
    best.resize(3);
    const int newest = (cache->length() - 1) / 8;
    if (std::ranges::count(best, newest) == 0) best.push_back(newest);
    std::ranges::sort(best);
    ExpectHolds(*cache, best, 8);
    Grow(*cache, 5);
  }
}

// A store that doubles would hold twice what was planned, and more while it moves.
TEST(ReindexedCache, TheStoreGrowsByChunks) {
  const auto cache = NewCache(kernels::RopePairing::kAdjacent, kSmall);
  const size_t a_position = kLayers * kHeads * (kDim * sizeof(float) + Layout().v_row_bytes());
  const size_t set = 2 * kLayers * Layout().layer_bytes(), places = 2 * 256 * sizeof(int32_t);
  for (int length = 7; length < 1200; length += 7) {
    Grow(*cache, 7);
    ASSERT_LE(cache->bytes(), set + places + static_cast<size_t>((length + 255) / 256) * 256 * a_position);
    if (length % 70 == 0) {
      ASSERT_TRUE(cache->set().HoldLast(3).ok());
    }
  }
  cache->Truncate(100);
  EXPECT_LE(cache->bytes(), set + places + 256 * a_position);
  ExpectHolds(*cache, {10, 11, 12}, 8);
}

}  // namespace
}  // namespace longspec
