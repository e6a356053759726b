// SPDX-License-Identifier: Apache-2.0
#include "kv/kv_cache.h"

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

}  // namespace longspec
