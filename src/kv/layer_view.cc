// SPDX-License-Identifier: Apache-2.0
#include "kv/layer_view.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/chunk_pool.h"
#include "kv/kv_mover.h"

namespace longspec {

Status LayerInPlace::Follow(const KvCache& cache) {
  LS_CHECK(cache.n_slots() == cache.length());
  cache_ = &cache;
  return {};
}

LayerCopy::LayerCopy(const KvLayout& layout, int layer) : layer_(layer), slots_(MakeHostPool(layout, 1)) {}

Status LayerCopy::Follow(const KvCache& cache) {
  LS_CHECK(cache.n_slots() == cache.length());
  const KvSpan from = cache.Span(layer_);
  const int length = cache.length();
  Truncate(length);
  if (n_ == length) return {};
  LS_TRY(slots_.Reserve(length, "a copy of a layer's keys and values"));
  const KvWriter to = slots_.writer();
  const size_t key_bytes = from.layout.k_format().bytes(), value_bytes = from.layout.v_row_bytes();
  std::vector<std::byte> room;
  const auto copy = [&](const std::byte* source, size_t bytes, std::byte* target) {
    std::memcpy(target, cache.mover().Read(source, bytes, &room).data(), bytes);
  };
  for (int chunk = n_ / kKvChunk; chunk * kKvChunk < length; ++chunk) {
    const int begin = std::max(0, n_ - chunk * kKvChunk), end = std::min(kKvChunk, length - chunk * kKvChunk);
    // Keys of a block lie between each other: a block that has new ones is read whole.
    const int first = begin / kKeyBlock * kKeyBlock, last = (end + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
    for (int head = 0; head < from.layout.n_kv_head; ++head) {
      const size_t keys = Z(first) * key_bytes, values = Z(begin) * value_bytes;
      copy(from.keys(chunk, head) + keys, Z(last - first) * key_bytes, to.keys(chunk, head) + keys);
      copy(from.values(chunk, head) + values, Z(end - begin) * value_bytes, to.values(chunk, head) + values);
    }
  }
  n_ = length;
  return {};
}

KvSpan LayerCopy::span() const {
  KvSpan span = slots_.span();
  span.n_committed = n_;
  return span;
}

}  // namespace longspec
