// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_slots.h"

namespace longspec {

void KvSlots::Reserve(int n_slots) {
  while (static_cast<int>(chunks_.size()) * kKvChunk < n_slots) {
    bases_.reserve(chunks_.size() + 1);
    chunks_.emplace_back(static_cast<size_t>(n_layer_) * layout_.layer_bytes());
    bases_.push_back(chunks_.back().data());
  }
}

}  // namespace longspec
