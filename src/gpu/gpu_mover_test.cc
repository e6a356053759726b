// SPDX-License-Identifier: Apache-2.0
//
// What is moved in a card's memory lies there bit for bit as the host's mover leaves it.
#include "gpu/gpu_mover.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/size.h"
#include "kernels/tables.h"
#include "kernels/testing/card_under_test.h"
#include "kv/block_summaries.h"
#include "kv/full_cache.h"
#include "kv/kv_slots.h"

namespace longspec {
namespace {

constexpr int kLayers = 2, kHeads = 2, kDim = 32, kSlots = 3 * kKvChunk;

class GpuMoverTest : public ::testing::TestWithParam<std::pair<CacheType, CacheType>> {
 protected:
  static KvLayout Layout() {
    return {.k_type = GetParam().first, .v_type = GetParam().second, .n_kv_head = kHeads, .head_dim = kDim};
  }
  std::shared_ptr<ChunkPool> GpuPool() const {
    std::vector<ChunkTier> tiers = {
        {.memory = std::make_shared<GpuChunks>(card_, KvChunkBytes(Layout(), kLayers))}};
    return std::make_shared<ChunkPool>(Layout(), kLayers, std::move(tiers), mover_);
  }
  static std::unique_ptr<KvSlots> Slots(std::shared_ptr<ChunkPool> pool, unsigned seed) {
    auto slots = std::make_unique<KvSlots>(std::move(pool));
    slots->Reserve(kSlots);
    std::minstd_rand random(seed);
    std::vector<std::byte> bytes(KvChunkBytes(Layout(), kLayers));
    for (int chunk = 0; chunk < kSlots / kKvChunk; ++chunk) {
      // Halves and floats that are numbers.
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 0x70);
      slots->mover().Write(bytes, slots->writer().chunks[chunk]);
    }
    return slots;
  }
  static std::vector<std::byte> BytesOf(const KvSlots& slots) {
    std::vector<std::byte> all, room;
    for (int chunk = 0; chunk < kSlots / kKvChunk; ++chunk) {
      const auto bytes =
          slots.mover().Read(slots.span().chunks[chunk], KvChunkBytes(Layout(), kLayers), &room);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  // move(from, to) on the host and on the card.
  template <typename F>
  void ExpectSame(const F& move) const {
    const auto host_from = Slots(MakeHostPool(Layout(), kLayers), 1);
    const auto host_to = Slots(MakeHostPool(Layout(), kLayers), 2);
    const auto gpu_from = Slots(GpuPool(), 1), gpu_to = Slots(GpuPool(), 2);
    ASSERT_EQ(BytesOf(*host_to), BytesOf(*gpu_to));
    const std::vector<std::byte> before = BytesOf(*host_to);
    move(*host_from, *host_to);
    move(*gpu_from, *gpu_to);
    EXPECT_NE(BytesOf(*host_to), before);
    EXPECT_EQ(BytesOf(*host_to), BytesOf(*gpu_to));
    EXPECT_EQ(BytesOf(*host_from), BytesOf(*gpu_from));
  }

  static Rotary Turning() {
    return {.kernels = &kernels::kReferenceTable,
            .pairing = kernels::RopePairing::kHalfSplit,
            .n_rot = 16,
            .row = [](int position, float* cos_sin) {
              for (int i = 0; i < 8; ++i) {
                const double angle = position / std::pow(10.0, i);
                cos_sin[2 * i] = static_cast<float>(std::cos(angle));
                cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle));
              }
            }};
  }

  const std::shared_ptr<Runtime> card_ = kernels::testing::CardUnderTest();
  const GpuMover mover_{*card_};
};

// Across chunks, onto each other, and on from where a move has put it.
constexpr SlotMove kMoves[] = {{5, 3}, {6, 4}, {300, 5}, {17, 300}, {300, 511}, {0, 255}, {255, 256}, {5, 0}};

TEST_P(GpuMoverTest, SlotsAreMovedInTheOrderOfTheList) {
  ExpectSame([](const KvSlots& from, const KvSlots& to) {
    from.mover().MoveSlots(from.span(), to.writer(), kLayers, kMoves);
  });
  ExpectSame([](const KvSlots&, const KvSlots& of) {
    of.mover().MoveSlots(of.span(), of.writer(), kLayers, kMoves);
  });
  ExpectSame([](const KvSlots& from, const KvSlots& to) {  // of some layers
    from.mover().MoveSlots(from.span(), to.writer(1), 1, kMoves);
  });
}

TEST_P(GpuMoverTest, BlocksAreMoved) {
  ExpectSame([](const KvSlots& from, const KvSlots& to) {
    const BlockMove moves[] = {{0, 1, 16, 0}, {1, 0, 32, 256}, {1, 1, 512, 496}};
    from.mover().MoveBlocks(from.span(), to.writer(), moves);
  });
}

TEST_P(GpuMoverTest, WhatTheHostDoesWithCopiesIsTheSame) {
  ExpectSame([](const KvSlots& from, const KvSlots& to) {
    const TurnedMove moves[] = {{{3, 4}, {3, 4}}, {{300, 5}, {300, 5}}, {{7, 700}, {7, 7}}};
    from.mover().MoveTurned(from.span(), to.writer(), kLayers, Turning(), moves);
  });
  std::vector<std::vector<float>> read;
  ExpectSame([&](const KvSlots& from, const KvSlots& to) {
    std::vector<float> keys(kLayers * kHeads * kDim), values(keys.size());
    from.mover().ReadKeys(from.span(), kLayers, 300, keys.data());
    from.mover().ReadValues(from.span(), kLayers, 17, values.data());
    to.mover().WriteKeys(to.writer(), kLayers, 299, 1, Turning(), 3, keys.data());
    read.push_back(keys);
    read.push_back(values);
  });
  for (size_t i : {size_t{0}, size_t{1}})
    EXPECT_EQ(std::memcmp(read[i].data(), read[i + 2].data(), read[i].size() * sizeof(float)), 0);
}

TEST_P(GpuMoverTest, ChunksAreCopiedAndFilled) {
  ExpectSame([](const KvSlots& from, const KvSlots& to) {
    const size_t bytes = KvChunkBytes(Layout(), kLayers);
    from.mover().CopyChunk(Layout(), kLayers, kKvChunk, from.span().chunks[1], to.writer().chunks[2]);
    to.mover().Fill(to.writer().chunks[0], bytes / 2, std::byte{0x3A});
  });
}

TEST_P(GpuMoverTest, SummariesAreTheHosts) {
  std::vector<std::vector<int32_t>> chosen;
  for (const bool on_gpu : {false, true}) {
    const auto cache = MakeFullCache(on_gpu ? GpuPool() : MakeHostPool(Layout(), kLayers), 2 * kKvChunk);
    auto kv = cache->Begin(400);
    const auto slots = Slots(MakeHostPool(Layout(), kLayers), 3);
    std::vector<std::byte> room;
    for (int chunk = 0; chunk < 2; ++chunk) {
      const size_t bytes = KvChunkBytes(Layout(), kLayers);
      cache->mover().Write(slots->mover().Read(slots->span().chunks[chunk], bytes, &room),
                           kv->Writer(0).chunks[chunk]);
    }
    kv->CommitAll();
    const auto summaries = cache->mover().NewSummaries(Layout(), kLayers, 2 * kHeads, BlockScore::kMinMax);
    summaries->Follow(*cache);
    EXPECT_EQ(summaries->n_blocks(), 25);
    std::vector<float> queries(Z(2 * kHeads * kDim));
    for (size_t i = 0; i < queries.size(); ++i) queries[i] = std::sin(static_cast<float>(i));
    const std::vector<StateRows> by_layer(kLayers, StateRows(queries.data(), 1, 2 * kHeads * kDim));
    summaries->SetQueries(by_layer);
    summaries->Choose(0, 25, 5, QueryReduction::kMean, &chosen.emplace_back());
  }
  EXPECT_EQ(chosen[0], chosen[1]);
}

INSTANTIATE_TEST_SUITE_P(Types, GpuMoverTest,
                         ::testing::Values(std::pair(CacheType::kF32, CacheType::kF32),
                                           std::pair(CacheType::kF16, CacheType::kF16),
                                           std::pair(CacheType::kQ8_0, CacheType::kQ8_0),
                                           std::pair(CacheType::kQ4_0, CacheType::kQ4_0),
                                           std::pair(CacheType::kI8, CacheType::kI8)),
                         [](const auto& types) { return std::string(CacheTypeName(types.param.first)); });

}  // namespace
}  // namespace longspec
