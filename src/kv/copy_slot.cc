// SPDX-License-Identifier: Apache-2.0
#include "kv/copy_slot.h"

#include <cstring>

namespace longspec {
namespace {

// Where the first key element of a slot lies inside its chunk; the next are kKeyBlock elements apart.
size_t KeyOffset(const KvLayout& layout, int slot) {
  const auto offset = static_cast<size_t>(slot % kKvChunk);
  const size_t block = static_cast<size_t>(layout.head_dim) * kKeyBlock;
  return (offset / kKeyBlock * block + offset % kKeyBlock) * ElementBytes(layout.k_type);
}

template <size_t kBytes>
void CopyColumn(const std::byte* from, std::byte* to, int n) {
  for (int i = 0; i < n; ++i) {
    const size_t at = static_cast<size_t>(i) * kKeyBlock * kBytes;
    std::memcpy(to + at, from + at, kBytes);
  }
}

}  // namespace

void CopySlot(const KvSpan& from, int from_slot, const KvSpan& to, int to_slot) {
  const KvLayout& layout = from.layout;
  const size_t key_from = KeyOffset(layout, from_slot), key_to = KeyOffset(layout, to_slot);
  const size_t v_row = static_cast<size_t>(layout.head_dim) * ElementBytes(layout.v_type);
  const size_t v_from = static_cast<size_t>(from_slot % kKvChunk) * v_row;
  const size_t v_to = static_cast<size_t>(to_slot % kKvChunk) * v_row;
  const auto copy_column = ElementBytes(layout.k_type) == 4 ? CopyColumn<4> : CopyColumn<2>;
  for (int head = 0; head < layout.n_kv_head; ++head) {
    copy_column(from.keys(from_slot / kKvChunk, head) + key_from,
                const_cast<std::byte*>(to.keys(to_slot / kKvChunk, head)) + key_to, layout.head_dim);
    std::memcpy(const_cast<std::byte*>(to.values(to_slot / kKvChunk, head)) + v_to,
                from.values(from_slot / kKvChunk, head) + v_from, v_row);
  }
}

}  // namespace longspec
