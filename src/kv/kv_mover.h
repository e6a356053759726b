// SPDX-License-Identifier: Apache-2.0
//
// The one place where keys and values move: what a commit keeps, what a fork copies, what is gathered from
// another cache, what a session's file has. Caches say what goes where, as lists; the mover does it where the
// bytes lie, the host here and a device in its own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/kv_span.h"
#include "kv/rotary.h"

namespace longspec {

class BlockSummaries;
class LayerView;
enum class BlockScore : unsigned char;

// A slot's keys and values, in all layers, go to another slot.
struct SlotMove {
  int from = 0, to = 0;
};

// So do those of the kKeyBlock slots that begin here, of one layer and KV head; `from` and `to` are multiples
// of kKeyBlock.
struct BlockMove {
  int layer = 0, kv_head = 0;
  int from = 0, to = 0;
};

// A slot's key and value go to another slot, and the key is turned from one position to another on the way.
struct TurnedMove {
  SlotMove slot;
  SlotMove position;
};

// Rows, ascending, that lie from slot `first` on and are to lie there side by side.
void CompactRows(int first, std::span<const int32_t> rows, std::vector<SlotMove>* moves);

// Spans and writers are of the first layer, whose bytes those of the other layers follow. Thread-safe, as far
// as slots are others.
class KvMover {
 public:
  virtual ~KvMover() = default;

  // Bit for bit, one after the other: a slot may be moved on. REQUIRES: equal layouts.
  virtual void MoveSlots(const KvSpan& from, const KvWriter& to, int n_layer,
                         std::span<const SlotMove> moves) const = 0;
  virtual void MoveBlocks(const KvSpan& from, const KvWriter& to, std::span<const BlockMove> moves) const = 0;
  // Keys are decoded, turned where the positions differ, and encoded; values stay to the bit. REQUIRES: equal
  // layouts but for the type of keys; other bytes.
  virtual void MoveTurned(const KvSpan& from, const KvWriter& to, int n_layer, const Rotary& rotary,
                          std::span<const TurnedMove> moves) const = 0;

  // Keys or values of a slot, decoded, (n_layer, n_kv_head, head_dim).
  virtual void ReadKeys(const KvSpan& from, int n_layer, int slot, float* keys) const = 0;
  virtual void ReadValues(const KvSpan& from, int n_layer, int slot, float* values) const = 0;
  // Encodes keys, (n, n_layer, n_kv_head, head_dim), turned by so many positions, into slots from `first` on,
  // whose values stay.
  virtual void WriteKeys(const KvWriter& to, int n_layer, int first, int n, const Rotary& rotary, int by,
                         const float* keys) const = 0;

  // The first n positions of a chunk, in all layers.
  virtual void CopyChunk(const KvLayout& layout, int n_layer, int n, const std::byte* from,
                         std::byte* to) const = 0;
  // Bytes of a chunk, for the host to read: where they lie, or in `room`.
  virtual std::span<const std::byte> Read(const std::byte* chunk, size_t bytes,
                                          std::vector<std::byte>* room) const = 0;
  virtual void Write(std::span<const std::byte> bytes, std::byte* chunk) const = 0;
  // Bytes of a chunk that are all to be this one.
  virtual void Fill(std::byte* at, size_t bytes, std::byte with) const = 0;

  // Summaries of keys, made and kept where these lie (kv/block_summaries.h). `n_head`: query heads.
  virtual std::unique_ptr<BlockSummaries> NewSummaries(const KvLayout& layout, int n_layer, int n_head,
                                                       BlockScore score) const = 0;
  // A layer of one cache for the host to read (kv/layer_view.h). Here: a copy, of what Read gives.
  virtual std::unique_ptr<LayerView> NewLayerView(const KvLayout& layout, int layer) const;
};

// The mover of memory that the host can address.
const KvMover& HostMover();

}  // namespace longspec
