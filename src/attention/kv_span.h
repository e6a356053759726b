// SPDX-License-Identifier: Apache-2.0
//
// What attention may read of one layer: keys and values in chunks of 256 positions (docs/arithmetic.md
// explains why 256). A view; the cache that made it owns the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "longspec/options.h"

namespace longspec {

inline constexpr int kKvChunk = 256;  // positions per chunk: the unit of the canonical softmax order
inline constexpr int kKeyBlock = 16;  // keys per transposed block inside a chunk

// Shape and element types of one layer's part of a chunk. Per KV head: K as (16 blocks, head_dim, 16 keys),
// then V as (256 keys, head_dim).
struct KvLayout {
  CacheType k_type = CacheType::kF16;
  CacheType v_type = CacheType::kF16;
  int n_kv_head = 0;
  int head_dim = 0;

  size_t k_head_bytes() const;  // one KV head's keys of one chunk
  size_t v_head_bytes() const;
  size_t layer_bytes() const { return static_cast<size_t>(n_kv_head) * (k_head_bytes() + v_head_bytes()); }
};

size_t ElementBytes(CacheType type);

// One layer of one sequence. Slot s lies in chunk s / 256 at offset s % 256.
struct KvSpan {
  KvLayout layout;
  std::byte* const* chunks = nullptr;  // (n_chunks) base addresses
  size_t layer_offset = 0;             // of this layer inside a chunk
  // Slots [0, n_committed) hold positions [0, n_committed); in a cache that forgets, those it still holds.
  int n_committed = 0;
  int n_speculated = 0;  // slots n_committed + i hold row i of the running transaction

  const std::byte* keys(int chunk, int kv_head) const {
    return chunks[chunk] + layer_offset + static_cast<size_t>(kv_head) * layout.k_head_bytes();
  }
  const std::byte* values(int chunk, int kv_head) const {
    return chunks[chunk] + layer_offset + static_cast<size_t>(layout.n_kv_head) * layout.k_head_bytes() +
           static_cast<size_t>(kv_head) * layout.v_head_bytes();
  }
};

}  // namespace longspec
