// SPDX-License-Identifier: Apache-2.0
#include "attention/kv_span.h"

namespace longspec {

size_t ElementBytes(CacheType type) { return type == CacheType::kF32 ? 4 : 2; }

size_t KvLayout::k_head_bytes() const {
  return static_cast<size_t>(kKvChunk) * static_cast<size_t>(head_dim) * ElementBytes(k_type);
}

size_t KvLayout::v_head_bytes() const {
  return static_cast<size_t>(kKvChunk) * static_cast<size_t>(head_dim) * ElementBytes(v_type);
}

}  // namespace longspec
