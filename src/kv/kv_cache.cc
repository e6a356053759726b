// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"

namespace longspec {

KvTransaction::KvTransaction(KvCache* cache, int base, int n_rows)
    : cache_(cache), base_(base), slot_(cache->n_slots()), n_rows_(n_rows) {}

KvTransaction::KvTransaction(KvTransaction&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      base_(other.base_),
      slot_(other.slot_),
      n_rows_(other.n_rows_) {}

KvTransaction::~KvTransaction() {
  if (cache_ == nullptr) return;
  cache_->transaction_open_ = false;
  cache_->Rollback();
}

void KvTransaction::Commit(std::span<const int32_t> rows) {
  LS_CHECK(cache_ != nullptr);
  int32_t previous = -1;
  for (const int32_t row : rows) {
    LS_CHECK(row > previous && row < n_rows_);
    previous = row;
  }
  KvCache* cache = std::exchange(cache_, nullptr);
  cache->transaction_open_ = false;
  cache->CommitRows(rows);
}

void KvTransaction::CommitAll() {
  std::vector<int32_t> rows(static_cast<size_t>(n_rows_));
  std::iota(rows.begin(), rows.end(), 0);
  Commit(rows);
}

Result<KvTransaction> KvCache::Begin(int n_rows) {
  LS_CHECK(!transaction_open_);
  LS_CHECK(n_rows > 0);
  if (n_rows > capacity() - length()) {
    return ResourceExhausted("the context is full: " + std::to_string(length()) + " of " +
                             std::to_string(capacity()) + " positions are used, " + std::to_string(n_rows) +
                             " more are needed (ctx_size sets the limit)");
  }
  LS_TRY(Reserve(n_rows));
  transaction_open_ = true;
  return KvTransaction(this, length(), n_rows);
}

Status CopyCommitted(const KvCache& from, int n_layer, KvCache& to) {
  LS_CHECK(to.length() == 0 && from.n_slots() == from.length());
  const int length = from.length();
  if (length == 0) return {};
  LS_ASSIGN(KvTransaction copy, to.Begin(length));
  for (int layer = 0; layer < n_layer; ++layer) {
    const KvSpan source = from.Span(layer), target = to.Span(layer);
    for (int chunk = 0; chunk * kKvChunk < length; ++chunk) {
      std::memcpy(target.chunks[chunk] + target.layer_offset, source.chunks[chunk] + source.layer_offset,
                  source.layout.layer_bytes());
    }
  }
  copy.CommitAll();
  return {};
}

Status CommitMadeUp(KvCache& cache, int n_layer, int n) {
  constexpr int kMadeUp = 0x2C;
  LS_ASSIGN(KvTransaction made_up, cache.Begin(n));
  const int first = (made_up.slot() + kKvChunk - 1) / kKvChunk;  // what a chunk holds already stays
  for (int layer = 0; layer < n_layer; ++layer) {
    const KvSpan span = cache.Span(layer);
    const size_t bytes = span.layout.layer_bytes();
    for (int chunk = first; chunk * kKvChunk < made_up.slot() + n; ++chunk) {
      std::memset(span.chunks[chunk] + span.layer_offset, kMadeUp, bytes);
    }
  }
  made_up.CommitAll();
  return {};
}

}  // namespace longspec
