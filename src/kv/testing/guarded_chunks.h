// SPDX-License-Identifier: Apache-2.0
//
// For tests: keys and values in a memory like that of a device. The host reads and writes them through a
// mover only.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/testing/guarded_pages.h"
#include "kv/block_summaries.h"
#include "kv/chunk_memory.h"
#include "kv/chunk_pool.h"
#include "kv/kv_mover.h"

namespace longspec::testing {

class GuardedChunks final : public ChunkMemory {
 public:
  GuardedChunks(std::shared_ptr<GuardedPages> pages, size_t chunk_bytes)
      : pages_(std::move(pages)), chunk_bytes_(chunk_bytes) {}

  Result<std::byte*> Take() override { return pages_->Take(chunk_bytes_); }
  void Return(std::byte* chunk) override { pages_->Return(chunk); }

 private:
  const std::shared_ptr<GuardedPages> pages_;
  const size_t chunk_bytes_;
};

// Does what the host's does, where the bytes lie.
class GuardedMover final : public KvMover {
 public:
  explicit GuardedMover(std::shared_ptr<GuardedPages> pages) : pages_(std::move(pages)) {}

  // A pool of which this is the mover.
  std::shared_ptr<ChunkPool> NewPool(const KvLayout& layout, int n_layer) const {
    auto chunks = std::make_shared<GuardedChunks>(pages_, KvChunkBytes(layout, n_layer));
    std::vector<ChunkTier> tiers(1);
    tiers[0].memory = std::move(chunks);
    return std::make_shared<ChunkPool>(layout, n_layer, std::move(tiers), *this);
  }

  void MoveSlots(const KvSpan& from, const KvWriter& to, int n_layer,
                 std::span<const SlotMove> moves) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().MoveSlots(from, to, n_layer, moves);
  }
  void MoveBlocks(const KvSpan& from, const KvWriter& to, std::span<const BlockMove> moves) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().MoveBlocks(from, to, moves);
  }
  void MoveTurned(const KvSpan& from, const KvWriter& to, int n_layer, const Rotary& rotary,
                  std::span<const TurnedMove> moves) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().MoveTurned(from, to, n_layer, rotary, moves);
  }
  void ReadKeys(const KvSpan& from, int n_layer, int slot, float* keys) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().ReadKeys(from, n_layer, slot, keys);
  }
  void ReadValues(const KvSpan& from, int n_layer, int slot, float* values) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().ReadValues(from, n_layer, slot, values);
  }
  void WriteKeys(const KvWriter& to, int n_layer, int first, int n, const Rotary& rotary, int by,
                 const float* keys) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().WriteKeys(to, n_layer, first, n, rotary, by, keys);
  }
  void CopyChunk(const KvLayout& layout, int n_layer, int n, const std::byte* from,
                 std::byte* to) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().CopyChunk(layout, n_layer, n, from, to);
  }
  std::span<const std::byte> Read(const std::byte* chunk, size_t bytes,
                                  std::vector<std::byte>* room) const override {
    const GuardedPages::Opening open(*pages_);
    n_read += bytes;
    room->assign(chunk, chunk + bytes);
    return *room;
  }
  void Write(std::span<const std::byte> bytes, std::byte* chunk) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().Write(bytes, chunk);
  }
  void Fill(std::byte* at, size_t bytes, std::byte with) const override {
    const GuardedPages::Opening open(*pages_);
    HostMover().Fill(at, bytes, with);
  }
  std::unique_ptr<BlockSummaries> NewSummaries(const KvLayout& layout, int n_layer, int n_head,
                                               BlockScore score) const override {
    return std::make_unique<Summaries>(pages_, HostMover().NewSummaries(layout, n_layer, n_head, score));
  }

  mutable std::atomic<size_t> n_read = 0;  // bytes, by Read

 private:
  class Summaries final : public BlockSummaries {
   public:
    Summaries(std::shared_ptr<GuardedPages> pages, std::unique_ptr<BlockSummaries> near)
        : pages_(std::move(pages)), near_(std::move(near)) {}

    void Follow(const KvCache& source) override {
      const GuardedPages::Opening open(*pages_);
      near_->Follow(source);
    }
    void Truncate(int length) override { near_->Truncate(length); }
    int n_blocks() const override { return near_->n_blocks(); }
    int64_t n_summarised() const override { return near_->n_summarised(); }
    void SetQueries(std::span<const StateRows> by_layer) override { near_->SetQueries(by_layer); }
    void Choose(int first, int end, int n, QueryReduction reduce,
                std::vector<int32_t>* blocks) const override {
      near_->Choose(first, end, n, reduce, blocks);
    }
    size_t bytes() const override { return near_->bytes(); }

   private:
    const std::shared_ptr<GuardedPages> pages_;
    const std::unique_ptr<BlockSummaries> near_;
  };

  const std::shared_ptr<GuardedPages> pages_;
};

}  // namespace longspec::testing
