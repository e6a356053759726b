// SPDX-License-Identifier: Apache-2.0
//
// What attention may read of one layer, and what a forward pass may write: keys and values in chunks of 256
// positions (docs/arithmetic.md explains why 256). Views; the cache that made them owns the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/kv_format.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

inline constexpr int kKvChunk = 256;  // positions per chunk: the unit of the canonical softmax order
inline constexpr int kKeyBlock = 16;  // keys per transposed block inside a chunk

constexpr kernels::KvType KernelType(CacheType type) { return static_cast<kernels::KvType>(type); }
std::string_view CacheTypeName(CacheType type);
// Name of the arithmetic in which attention multiplies numbers of this type (docs/arithmetic.md).
std::string_view AttentionArithmetic(CacheType type);

// Shape and element types of one layer's part of a chunk. Of all KV heads the keys as 16 blocks of 16, then
// of all the values as 256 rows; kernels/ops.h says what a block and a row hold.
struct KvLayout {
  CacheType k_type = CacheType::kF16;
  CacheType v_type = CacheType::kF16;
  int n_kv_head = 0;
  int head_dim = 0;

  kernels::KvFormat k_format() const { return kernels::FormatOf(KernelType(k_type), head_dim); }
  kernels::KvFormat v_format() const { return kernels::FormatOf(KernelType(v_type), head_dim); }
  size_t v_row_bytes() const { return v_format().bytes(); }  // one position's values of one KV head
  size_t k_head_bytes() const { return kKvChunk * k_format().bytes(); }  // one KV head's keys of one chunk
  size_t v_head_bytes() const { return kKvChunk * v_format().bytes(); }
  size_t layer_bytes() const { return static_cast<size_t>(n_kv_head) * (k_head_bytes() + v_head_bytes()); }
};

// Whether heads of this size can be stored in these types.
Status CheckLayout(const KvLayout& layout);

// One layer of one sequence. Slot s lies in chunk s / 256 at offset s % 256.
struct KvSpan {
  KvLayout layout;
  const std::byte* const* chunks = nullptr;  // (n_chunks) base addresses
  size_t layer_offset = 0;                   // of this layer inside a chunk
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
  const std::byte* value_row(int slot, int kv_head) const {
    return values(slot / kKvChunk, kv_head) + static_cast<size_t>(slot % kKvChunk) * layout.v_row_bytes();
  }

  // One element, as attention reads it; slow.
  float KeyAt(int slot, int kv_head, int d) const;
  float ValueAt(int slot, int kv_head, int d) const;
};

// The same bytes for writing. Whoever has one may write the slots it was made for, and no others.
struct KvWriter {
  KvLayout layout;
  std::byte* const* chunks = nullptr;
  size_t layer_offset = 0;

  std::byte* keys(int chunk, int kv_head) const {
    return chunks[chunk] + layer_offset + static_cast<size_t>(kv_head) * layout.k_head_bytes();
  }
  std::byte* values(int chunk, int kv_head) const {
    return chunks[chunk] + layer_offset + static_cast<size_t>(layout.n_kv_head) * layout.k_head_bytes() +
           static_cast<size_t>(kv_head) * layout.v_head_bytes();
  }
  std::byte* value_row(int slot, int kv_head) const {
    return values(slot / kKvChunk, kv_head) + static_cast<size_t>(slot % kKvChunk) * layout.v_row_bytes();
  }
};

}  // namespace longspec
