// SPDX-License-Identifier: Apache-2.0
#include "kv/key_writer.h"

#include <cstring>

namespace longspec {

KeyWriter::KeyWriter(const KvLayout& layout, const kernels::KernelTable& kernels)
    : layout_(layout),
      kernels_(kernels),
      no_value_(static_cast<size_t>(layout.head_dim)),
      value_(layout.v_row_bytes()) {}

void KeyWriter::Store(const float* key, const KvWriter& to, int slot, int head) {
  std::byte* const value = to.value_row(slot, head);
  std::memcpy(value_.data(), value, value_.size());
  kernels_.store_kv({.k = key,
                     .v = no_value_.data(),
                     .keys = to.keys(slot / kKvChunk, head),
                     .values = to.values(slot / kKvChunk, head),
                     .offset = slot % kKvChunk,
                     .head_dim = layout_.head_dim,
                     .k_type = KernelType(layout_.k_type),
                     .v_type = KernelType(layout_.v_type)});
  std::memcpy(value, value_.data(), value_.size());
}

}  // namespace longspec
