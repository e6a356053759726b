// SPDX-License-Identifier: Apache-2.0
//
// Keys and values in numbered slots that are no positions of a sequence: those of guesses, say, or of a
// cache's choice. There are as many slots as are asked for; memory grows with their number and stays. Not
// thread-safe; a forward pass writes disjoint slots from several threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "attention/kv_span.h"
#include "kv/chunk_pool.h"
#include "longspec/status.h"

namespace longspec {

class KvSlots {
 public:
  explicit KvSlots(std::shared_ptr<ChunkPool> pool);

  // Makes room for so many slots; what they hold stays. Throws std::bad_alloc.
  void Reserve(int n_slots);
  // The same; kResourceExhausted, naming whose they are.
  Status Reserve(int n_slots, std::string_view whose);

  // Valid until the next Reserve.
  KvSpan span(int layer = 0) const {
    return {.layout = layout(), .chunks = bases_.data(), .layer_offset = offset(layer)};
  }
  KvWriter writer(int layer = 0) const {
    return {.layout = layout(), .chunks = bases_.data(), .layer_offset = offset(layer)};
  }

  const KvLayout& layout() const { return pool_->layout(); }
  int n_layer() const { return pool_->n_layer(); }
  const KvMover& mover() const { return pool_->mover(); }
  size_t bytes() const { return chunks_.size() * pool_->chunk_bytes(); }

 private:
  size_t offset(int layer) const { return static_cast<size_t>(layer) * layout().layer_bytes(); }

  std::shared_ptr<ChunkPool> pool_;
  std::vector<KvChunkRef> chunks_;
  std::vector<std::byte*> bases_;
};

}  // namespace longspec
