// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "kv/kv_mover.h"

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

KvWriter KvTransaction::Writer(int layer) const {
  LS_CHECK(cache_ != nullptr);
  return cache_->Writer(layer);
}

void KvTransaction::Commit(std::span<const int32_t> rows) {
  LS_CHECK(cache_ != nullptr);
  int32_t previous = -1;
  for (const int32_t row : rows) {
    LS_CHECK(row > previous && row < n_rows_);
    previous = row;
  }
  cache_->CommitRows(rows);  // if it throws, the transaction is rolled back
  std::exchange(cache_, nullptr)->transaction_open_ = false;
}

void KvTransaction::CommitAll() {
  std::vector<int32_t> rows(static_cast<size_t>(n_rows_));
  std::iota(rows.begin(), rows.end(), 0);
  Commit(rows);
}

const KvMover& KvCache::mover() const { return HostMover(); }

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
  return KvTransaction(this, next_position(), n_rows);
}

Status CommitMadeUp(KvCache& cache, int n_layer, int n) {
  constexpr std::byte kMadeUp{0x2C};
  LS_ASSIGN(KvTransaction made_up, cache.Begin(n));
  const int first = (made_up.slot() + kKvChunk - 1) / kKvChunk;  // what a chunk holds already stays
  for (int layer = 0; layer < n_layer; ++layer) {
    const KvWriter writer = made_up.Writer(layer);
    for (int chunk = first; chunk * kKvChunk < made_up.slot() + n; ++chunk) {
      cache.mover().Fill(writer.keys(chunk, 0), writer.layout.layer_bytes(), kMadeUp);
    }
  }
  made_up.CommitAll();
  return {};
}

}  // namespace longspec
