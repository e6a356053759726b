// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_slots.h"

#include <new>
#include <string>
#include <utility>

namespace longspec {

KvSlots::KvSlots(std::shared_ptr<ChunkPool> pool) : pool_(std::move(pool)) {}

void KvSlots::Reserve(int n_slots) {
  while (static_cast<int>(chunks_.size()) * kKvChunk < n_slots) {
    auto chunk = pool_->Take();
    if (!chunk.ok()) throw std::bad_alloc();
    bases_.reserve(chunks_.size() + 1);
    chunks_.push_back(*std::move(chunk));
    bases_.push_back(chunks_.back()->data());
  }
}

Status KvSlots::Reserve(int n_slots, std::string_view whose) try {
  Reserve(n_slots);
  return {};
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for " + std::string(whose) + " of " + std::to_string(n_slots) +
                           " positions beyond " + std::to_string(bytes() >> 20) + " MiB");
}

}  // namespace longspec
