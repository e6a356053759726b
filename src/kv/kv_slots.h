// SPDX-License-Identifier: Apache-2.0
//
// Keys and values in numbered slots that are no positions of a sequence: those of guesses, say. As many slots
// as are asked for; memory grows with the largest number and stays. Not thread-safe; a forward pass writes
// disjoint slots from several threads.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/kv_span.h"
#include "base/aligned_buffer.h"

namespace longspec {

class KvSlots {
 public:
  KvSlots(const KvLayout& layout, int n_layer) : layout_(layout), n_layer_(n_layer) {}

  // Makes room for so many slots; what they hold stays. Throws std::bad_alloc.
  void Reserve(int n_slots);

  // Of layer 0. Valid until the next Reserve.
  KvSpan span() const { return {.layout = layout_, .chunks = bases_.data()}; }
  KvWriter writer() { return {.layout = layout_, .chunks = bases_.data()}; }

  size_t bytes() const { return chunks_.size() * static_cast<size_t>(n_layer_) * layout_.layer_bytes(); }

 private:
  KvLayout layout_;
  int n_layer_;
  std::vector<AlignedBuffer> chunks_;  // (n_layer, layer_bytes) each
  std::vector<std::byte*> bases_;
};

}  // namespace longspec
