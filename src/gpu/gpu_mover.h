// SPDX-License-Identifier: Apache-2.0
//
// Moves keys and values of chunks in a card's memory. What commits and retrieval do is done there; what
// turns, decodes or encodes keys is done on the host, with copies of the chunks that it concerns.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "gpu/gpu_memory.h"
#include "kv/kv_mover.h"

namespace longspec {

class GpuMover final : public KvMover {
 public:
  explicit GpuMover(Runtime& card) : card_(card), lists_(card) {}

  void MoveSlots(const KvSpan& from, const KvWriter& to, int n_layer,
                 std::span<const SlotMove> moves) const override;
  void MoveBlocks(const KvSpan& from, const KvWriter& to, std::span<const BlockMove> moves) const override;
  void MoveTurned(const KvSpan& from, const KvWriter& to, int n_layer, const Rotary& rotary,
                  std::span<const TurnedMove> moves) const override;
  void ReadKeys(const KvSpan& from, int n_layer, int slot, float* keys) const override;
  void ReadValues(const KvSpan& from, int n_layer, int slot, float* values) const override;
  void WriteKeys(const KvWriter& to, int n_layer, int first, int n, const Rotary& rotary, int by,
                 const float* keys) const override;
  void CopyChunk(const KvLayout& layout, int n_layer, int n, const std::byte* from,
                 std::byte* to) const override;
  std::span<const std::byte> Read(const std::byte* chunk, size_t bytes,
                                  std::vector<std::byte>* room) const override;
  void Write(std::span<const std::byte> bytes, std::byte* chunk) const override;
  void Fill(std::byte* at, size_t bytes, std::byte with) const override;
  std::unique_ptr<BlockSummaries> NewSummaries(const KvLayout& layout, int n_layer, int n_head,
                                               BlockScore score) const override;

 private:
  Runtime& card_;
  mutable std::mutex mutex_;  // of the lists
  mutable GpuLists lists_;
};

}  // namespace longspec
