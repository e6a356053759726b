// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_mover.h"

#include <algorithm>

#include "base/size.h"
#include "kernels/gpu/bodies.h"
#include "kv/block_summaries.h"

namespace longspec {
namespace {

namespace gpu = kernels::gpu;

// Copies of a cache's chunks, which the host reads and writes.
class HostChunks {
 public:
  // The chunks that these slots lie in. `view`: a span or a writer of the first layer.
  template <typename View>
  HostChunks(Runtime& card, const View& view, int n_layer, std::vector<int> slots)
      : card_(card), bytes_(Z(n_layer) * view.layout.layer_bytes()) {
    std::ranges::sort(slots);
    for (const int slot : slots) {
      const size_t chunk = Z(slot / kKvChunk);
      if (chunk < at_.size() && at_[chunk] != nullptr) continue;
      at_.resize(chunk + 1);
      const std::byte* const there = view.chunks[chunk] + view.layer_offset;
      there_.push_back(const_cast<std::byte*>(there));
      copies_.push_back(std::vector<std::byte>(bytes_));
      card_.Copy(there, copies_.back().data(), bytes_);
      at_[chunk] = copies_.back().data();
    }
  }

  template <typename View>
  View ViewOf(View view) const {
    view.chunks = at_.data();
    view.layer_offset = 0;
    return view;
  }

  void WriteBack() const {
    for (size_t i = 0; i < copies_.size(); ++i) card_.Copy(copies_[i].data(), there_[i], bytes_);
  }

 private:
  Runtime& card_;
  const size_t bytes_;
  std::vector<std::vector<std::byte>> copies_;
  std::vector<std::byte*> there_;
  std::vector<std::byte*> at_;  // by chunk; null: not copied
};

}  // namespace

void GpuMover::MoveSlots(const KvSpan& from, const KvWriter& to, int n_layer,
                         std::span<const SlotMove> moves) const {
  if (moves.empty()) return;
  std::vector<gpu::SlotCopy> copies;
  for (const SlotMove& move : moves) {
    copies.push_back({.from = from.chunks[move.from / kKvChunk] + from.layer_offset,
                      .to = to.chunks[move.to / kKvChunk] + to.layer_offset,
                      .from_offset = move.from % kKvChunk,
                      .to_offset = move.to % kKvChunk});
  }
  const KvLayout& layout = from.layout;
  const kernels::KvFormat key = layout.k_format();
  const std::lock_guard lock(mutex_);
  lists_.Clear();
  const size_t at = lists_.Add(copies);
  lists_.Bring();
  card_.Launch<gpu::MoveSlots>({.moves = lists_.At<gpu::SlotCopy>(at),
                                .n_moves = static_cast<int>(copies.size()),
                                .n_layer = n_layer,
                                .n_kv_head = layout.n_kv_head,
                                .layer_bytes = static_cast<int64_t>(layout.layer_bytes()),
                                .key_code_bytes = static_cast<int>(key.code_bytes),
                                .key_codes = static_cast<int>(key.n_codes),
                                .key_scales = static_cast<int>(key.n_scales),
                                .value_bytes = static_cast<int>(layout.v_row_bytes())});
}

void GpuMover::MoveBlocks(const KvSpan& from, const KvWriter& to, std::span<const BlockMove> moves) const {
  if (moves.empty()) return;
  const size_t key_bytes = from.layout.k_format().bytes(), layer_bytes = from.layout.layer_bytes();
  std::vector<gpu::BlockCopy> copies;
  for (const BlockMove& move : moves) {
    KvSpan source = from;
    KvWriter target = to;
    source.layer_offset += Z(move.layer) * layer_bytes;
    target.layer_offset += Z(move.layer) * layer_bytes;
    copies.push_back(
        {.keys_from = source.keys(move.from / kKvChunk, move.kv_head) + Z(move.from % kKvChunk) * key_bytes,
         .values_from = source.value_row(move.from, move.kv_head),
         .keys_to = target.keys(move.to / kKvChunk, move.kv_head) + Z(move.to % kKvChunk) * key_bytes,
         .values_to = target.value_row(move.to, move.kv_head)});
  }
  const std::lock_guard lock(mutex_);
  lists_.Clear();
  const size_t at = lists_.Add(copies);
  lists_.Bring();
  card_.Launch<gpu::MoveBlocks>(
      {.moves = lists_.At<gpu::BlockCopy>(at),
       .n_moves = static_cast<int>(copies.size()),
       .key_pieces = static_cast<int>(kKeyBlock * key_bytes / 16),
       .value_pieces = static_cast<int>(kKeyBlock * from.layout.v_row_bytes() / 16)});
}

void GpuMover::MoveTurned(const KvSpan& from, const KvWriter& to, int n_layer, const Rotary& rotary,
                          std::span<const TurnedMove> moves) const {
  std::vector<int> read, written;
  for (const TurnedMove& move : moves) {
    read.push_back(move.slot.from);
    written.push_back(move.slot.to);
  }
  const HostChunks source(card_, from, n_layer, read), target(card_, to, n_layer, written);
  HostMover().MoveTurned(source.ViewOf(from), target.ViewOf(to), n_layer, rotary, moves);
  target.WriteBack();
}

void GpuMover::ReadKeys(const KvSpan& from, int n_layer, int slot, float* keys) const {
  HostMover().ReadKeys(HostChunks(card_, from, n_layer, {slot}).ViewOf(from), n_layer, slot, keys);
}

void GpuMover::ReadValues(const KvSpan& from, int n_layer, int slot, float* values) const {
  HostMover().ReadValues(HostChunks(card_, from, n_layer, {slot}).ViewOf(from), n_layer, slot, values);
}

void GpuMover::WriteKeys(const KvWriter& to, int n_layer, int first, int n, const Rotary& rotary, int by,
                         const float* keys) const {
  std::vector<int> written;
  for (int slot = first; slot < first + n; ++slot) written.push_back(slot);
  const HostChunks target(card_, to, n_layer, written);
  HostMover().WriteKeys(target.ViewOf(to), n_layer, first, n, rotary, by, keys);
  target.WriteBack();
}

// All of its positions: that is one copy.
void GpuMover::CopyChunk(const KvLayout& layout, int n_layer, int /*n*/, const std::byte* from,
                         std::byte* to) const {
  card_.Copy(from, to, Z(n_layer) * layout.layer_bytes());
}

std::span<const std::byte> GpuMover::Read(const std::byte* chunk, size_t bytes,
                                          std::vector<std::byte>* room) const {
  room->resize(bytes);
  card_.Copy(chunk, room->data(), bytes);
  return *room;
}

void GpuMover::Write(std::span<const std::byte> bytes, std::byte* chunk) const {
  card_.Copy(bytes.data(), chunk, bytes.size());
}

void GpuMover::Fill(std::byte* at, size_t bytes, std::byte with) const { card_.Fill(at, bytes, with); }

std::unique_ptr<BlockSummaries> GpuMover::NewSummaries(const KvLayout& layout, int n_layer, int n_head,
                                                       BlockScore score) const {
  return HostMover().NewSummaries(layout, n_layer, n_head, score);
}

}  // namespace longspec
