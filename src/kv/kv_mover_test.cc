// SPDX-License-Identifier: Apache-2.0
//
// What is moved lies, bit for bit, as if it had been stored where it went.
#include "kv/kv_mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "attention/testing/store_row.h"
#include "base/size.h"
#include "base/testing/files.h"
#include "kernels/tables.h"
#include "kv/kv_slots.h"

namespace longspec {
namespace {

constexpr int kLayers = 2, kHeads = 2, kDim = 32, kSlots = 2 * kKvChunk, kNobody = -1, kRotated = 16;

float KeyOf(int token, int layer, int head, int d) {
  return std::sin(static_cast<float>(token * 7 + layer * 3 + head * 5 + d));
}
float ValueOf(int token, int layer, int head, int d) { return KeyOf(token + 1000, layer, head, d); }

using Heads = std::vector<int>;  // tokens of slots, (kSlots, kLayers, kHeads)

class KvMoverTest : public ::testing::TestWithParam<std::pair<CacheType, CacheType>> {
 protected:
  static KvLayout Layout() {
    return {.k_type = GetParam().first, .v_type = GetParam().second, .n_kv_head = kHeads, .head_dim = kDim};
  }
  static std::unique_ptr<KvSlots> Empty(const KvLayout& layout = Layout()) {
    auto slots = std::make_unique<KvSlots>(MakeHostPool(layout, kLayers));
    slots->Reserve(kSlots);
    return slots;
  }
  // In memory that nobody had before.
  static std::unique_ptr<KvSlots> Holding(const Heads& tokens, std::unique_ptr<KvSlots> slots = Empty()) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<int>(i);
      const int slot = at / (kLayers * kHeads), layer = at / kHeads % kLayers, head = at % kHeads;
      if (tokens[i] == kNobody) continue;
      float k[kDim], v[kDim];
      for (int d = 0; d < kDim; ++d) {
        k[d] = KeyOf(tokens[i], layer, head, d);
        v[d] = ValueOf(tokens[i], layer, head, d);
      }
      testing::StoreRow(slots->writer(layer), slot, head, k, v);
    }
    return slots;
  }
  // Token i in slot i.
  static Heads Counting() {
    Heads tokens;
    for (int i = 0; i < kSlots * kLayers * kHeads; ++i) tokens.push_back(i / (kLayers * kHeads));
    return tokens;
  }
  static int& At(Heads& tokens, int slot, int layer, int head) {
    return tokens[Z((slot * kLayers + layer) * kHeads + head)];
  }
  static void ExpectSame(const KvSlots& a, const KvSlots& b) {
    for (int chunk = 0; chunk < kSlots / kKvChunk; ++chunk) {
      EXPECT_EQ(
          std::memcmp(a.span().chunks[chunk], b.span().chunks[chunk], KvChunkBytes(a.layout(), kLayers)), 0)
          << chunk;
    }
  }
};

// One after the other, across chunks, onto each other, and on from where a move has put it.
constexpr SlotMove kMoves[] = {{5, 3}, {6, 4}, {300, 5}, {17, 300}, {300, 511}, {0, 255}, {255, 256}, {5, 0}};

TEST_P(KvMoverTest, SlotsAreMovedInTheOrderOfTheList) {
  Heads expected = Counting();
  for (const SlotMove& move : kMoves) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        At(expected, move.to, layer, head) = At(expected, move.from, layer, head);
      }
    }
  }
  const auto slots = Holding(Counting());
  HostMover().MoveSlots(slots->span(), slots->writer(), kLayers, kMoves);
  ExpectSame(*slots, *Holding(expected));
}

TEST_P(KvMoverTest, SlotsAreCopiedFromOthersAndFewerLayers) {
  Heads expected(Counting().size(), kNobody);
  for (const SlotMove& move : kMoves) {
    for (int head = 0; head < kHeads; ++head) At(expected, move.to, 0, head) = move.from;
  }
  const auto source = Holding(Counting()), copy = Empty();
  HostMover().MoveSlots(source->span(), copy->writer(), 1, kMoves);
  ExpectSame(*copy, *Holding(expected));
  ExpectSame(*source, *Holding(Counting()));
}

TEST_P(KvMoverTest, BlocksAreOfOneLayerAndHead) {
  constexpr BlockMove kBlocks[] = {{.layer = 0, .kv_head = 1, .from = 240, .to = 256},
                                   {.layer = 1, .kv_head = 0, .from = 496, .to = 0},
                                   {.layer = 1, .kv_head = 1, .from = 32, .to = 16}};
  Heads expected(Counting().size(), kNobody);
  for (const BlockMove& move : kBlocks) {
    for (int i = 0; i < kKeyBlock; ++i) At(expected, move.to + i, move.layer, move.kv_head) = move.from + i;
  }
  const auto source = Holding(Counting()), copy = Empty();
  HostMover().MoveBlocks(source->span(), copy->writer(), kBlocks);
  ExpectSame(*copy, *Holding(expected));
}

TEST_P(KvMoverTest, AFileHoldsTheSameBytesAsMemory) {
  const testing::Folder folder;
  const auto in_file = [&] {
    auto slots = std::make_unique<KvSlots>(
        MakeHostPool(Layout(), kLayers, {.folder = folder.path(), .memory_chunks = 1}));
    slots->Reserve(kSlots);
    return slots;
  };
  const auto source = Holding(Counting(), in_file());
  ExpectSame(*source, *Holding(Counting()));
  HostMover().MoveSlots(source->span(), source->writer(), kLayers, kMoves);
  const auto other = Holding(Counting());
  HostMover().MoveSlots(other->span(), other->writer(), kLayers, kMoves);
  ExpectSame(*source, *other);
}

TEST_P(KvMoverTest, ChunksAreCopiedAsFarAsTheyAreHeld) {
  const auto source = Holding(Counting()), copy = Empty();
  constexpr int kHeld = 100;
  HostMover().CopyChunk(Layout(), kLayers, kHeld, source->span().chunks[1], copy->writer().chunks[0]);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      for (int slot = 0; slot < kHeld; ++slot) {
        ASSERT_EQ(std::memcmp(copy->span(layer).value_row(slot, head),
                              source->span(layer).value_row(kKvChunk + slot, head), Layout().v_row_bytes()),
                  0);
        for (int d = 0; d < kDim; ++d) {
          ASSERT_EQ(copy->span(layer).KeyAt(slot, head, d),
                    source->span(layer).KeyAt(kKvChunk + slot, head, d));
        }
      }
    }
  }
  std::vector<std::byte> room;
  const auto bytes = HostMover().Read(source->span().chunks[0], KvChunkBytes(Layout(), kLayers), &room);
  HostMover().Write(bytes, copy->writer().chunks[0]);
  HostMover().Write(HostMover().Read(source->span().chunks[1], bytes.size(), &room),
                    copy->writer().chunks[1]);
  ExpectSame(*copy, *source);
}

// --- Keys that are turned. ---

void TurnOf(int position, float* cos_sin) {
  for (int i = 0; i < kRotated / 2; ++i) {
    const double angle = position * std::pow(100.0, -2.0 * i / kRotated);
    cos_sin[2 * i] = 1.25F * static_cast<float>(std::cos(angle));
    cos_sin[2 * i + 1] = 1.25F * static_cast<float>(std::sin(angle));
  }
}

const Rotary kRotary = {.kernels = &kernels::kReferenceTable,
                        .pairing = kernels::RopePairing::kAdjacent,
                        .n_rot = kRotated,
                        .magnitude = 1.25,
                        .row = TurnOf};

// Into keys of another type, too: those of a store are f32.
TEST_P(KvMoverTest, TurnedKeysAreStoredAsIfTheyWereComputedThere) {
  KvLayout store_layout = Layout();
  store_layout.k_type = CacheType::kF32;
  constexpr TurnedMove kTurned[] = {{.slot = {3, 400}, .position = {3, 400}},
                                    {.slot = {400, 7}, .position = {2, 9}},
                                    {.slot = {255, 256}, .position = {255, 5}}};
  for (const KvLayout& layout : {store_layout, Layout()}) {
    const auto source = Holding(Counting()), copy = Empty(layout), expected = Empty(layout);
    HostMover().MoveTurned(source->span(), copy->writer(), kLayers, kRotary, kTurned);
    for (const auto& [slot, position] : kTurned) {
      float back[kRotated], there[kRotated];
      TurnOf(position.from, back);
      TurnOf(position.to, there);
      for (int i = 0; i < kRotated; ++i) back[i] *= (i % 2 == 0 ? 1.0F : -1.0F) / (1.25F * 1.25F);
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          float k[kDim], v[kDim];
          for (int d = 0; d < kDim; ++d) {
            k[d] = source->span(layer).KeyAt(slot.from, head, d);
            v[d] = ValueOf(slot.from, layer, head, d);
          }
          if (position.from != position.to) {
            kernels::kReferenceTable.rope(k, kRotated, back, kRotary.pairing);
            kernels::kReferenceTable.rope(k, kRotated, there, kRotary.pairing);
          }
          testing::StoreRow(expected->writer(layer), slot.to, head, k, v);
        }
      }
    }
    ExpectSame(*copy, *expected);
  }
}

TEST_P(KvMoverTest, KeysAreReadAndWrittenAndValuesStay) {
  constexpr int kFirst = 255, kBy = 30;  // and the next chunk's first slot
  const auto source = Holding(Counting()), written = Holding(Counting()), expected = Holding(Counting());
  constexpr size_t kFloats = size_t{kLayers} * kHeads * kDim;
  std::vector<float> keys(2 * kFloats);
  HostMover().ReadKeys(source->span(), kLayers, 10, keys.data());
  HostMover().ReadKeys(source->span(), kLayers, 300, keys.data() + kFloats);
  HostMover().WriteKeys(written->writer(), kLayers, kFirst, 2, kRotary, kBy, keys.data());
  float turn[kRotated];
  TurnOf(kBy, turn);
  for (float& x : turn) x = static_cast<float>(static_cast<double>(x) / 1.25);
  const float* key = keys.data();
  for (const int slot : {kFirst, kFirst + 1}) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head, key += kDim) {
        float k[kDim], v[kDim];
        for (int d = 0; d < kDim; ++d) {
          k[d] = key[d];
          v[d] = ValueOf(slot, layer, head, d);
          ASSERT_EQ(key[d], source->span(layer).KeyAt(slot == kFirst ? 10 : 300, head, d));
        }
        kernels::kReferenceTable.rope(k, kRotated, turn, kRotary.pairing);
        testing::StoreRow(expected->writer(layer), slot, head, k, v);
      }
    }
  }
  ExpectSame(*written, *expected);
}

TEST_P(KvMoverTest, ValuesAreReadAsAttentionReadsThem) {
  const auto source = Holding(Counting());
  std::vector<float> values(size_t{kLayers} * kHeads * kDim), of_last(size_t{kHeads} * kDim);
  HostMover().ReadValues(source->span(), kLayers, 300, values.data());
  HostMover().ReadValues(source->span(kLayers - 1), 1, 300, of_last.data());
  const float* value = values.data();
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      for (int d = 0; d < kDim; ++d) ASSERT_EQ(*value++, source->span(layer).ValueAt(300, head, d));
    }
  }
  EXPECT_TRUE(std::equal(of_last.begin(), of_last.end(), values.end() - std::ssize(of_last)));
}

INSTANTIATE_TEST_SUITE_P(Types, KvMoverTest,
                         ::testing::Values(std::pair{CacheType::kF32, CacheType::kF32},
                                           std::pair{CacheType::kF16, CacheType::kF16},
                                           std::pair{CacheType::kBF16, CacheType::kBF16},
                                           std::pair{CacheType::kBF16Amx, CacheType::kBF16Amx},
                                           std::pair{CacheType::kQ8_0, CacheType::kQ8_0},
                                           std::pair{CacheType::kQ4_0, CacheType::kQ4_0},
                                           std::pair{CacheType::kI8, CacheType::kI8},
                                           std::pair{CacheType::kQ8_0, CacheType::kF16},
                                           std::pair{CacheType::kF16, CacheType::kQ4_0}));

TEST(CompactRows, ListsThoseThatAreNotInTheirPlace) {
  std::vector<SlotMove> moves = {{.from = 1, .to = 2}};
  CompactRows(100, std::vector<int32_t>{0, 1, 3, 7}, &moves);
  ASSERT_EQ(moves.size(), 2U);
  EXPECT_EQ(std::pair(moves[0].from, moves[0].to), std::pair(103, 102));
  EXPECT_EQ(std::pair(moves[1].from, moves[1].to), std::pair(107, 103));
  CompactRows(100, {}, &moves);
  EXPECT_TRUE(moves.empty());
}

}  // namespace
}  // namespace longspec
