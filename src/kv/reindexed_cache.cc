// SPDX-License-Identifier: Apache-2.0
#include "kv/reindexed_cache.h"

#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/key_writer.h"

namespace longspec {
namespace {

class ReindexedCacheImpl final : public ReindexedCache {
 public:
  ReindexedCacheImpl(const KvLayout& layout, int n_layer, Rotary rotary, const ReindexOptions& options,
                     std::shared_ptr<ChunkPool> pool)
      : layout_(layout),
        n_layer_(n_layer),
        kernels_(rotary.kernels),
        store_(MakeFullCache(std::move(pool), std::numeric_limits<int>::max() - kKvChunk)),
        set_(layout, n_layer, std::move(rotary), options, {.cache = store_.get()}) {}

  int length() const override { return store_->length(); }
  int n_slots() const override { return set_.n_slots(); }
  int next_position() const override { return n_slots(); }
  int capacity() const override { return store_->capacity(); }
  Exactness exactness() const override { return Exactness::kApproximate; }
  size_t bytes() const override { return set_.bytes() + store_->bytes(); }

  KvSpan Span(int layer) const override {
    KvSpan span = set_.Span(layer);
    span.n_speculated = n_speculated_;
    return span;
  }

  void Truncate(int length) override {
    store_->Truncate(length);
    set_.Truncate(length);
  }

  ReindexedSet& set() override { return set_; }
  FullCache& store() override { return *store_; }

 protected:
  Status Reserve(int n_rows) override {
    LS_TRY(set_.Follow());
    LS_TRY(set_.MakeRoom(n_rows));
    LS_ASSIGN(KvTransaction stored, store_->Begin(n_rows));
    stored_.emplace(std::move(stored));
    n_speculated_ = n_rows;
    return {};
  }

  // REQUIRES (of callers): kept rows are a chain from the first on, so that row i stands at the i-th
  // position.
  void CommitRows(std::span<const int32_t> rows) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      LS_CHECK(rows[i] == static_cast<int32_t>(i));
      Store(n_slots() + static_cast<int>(i), stored_->base() + static_cast<int>(i));
    }
    stored_->Commit(rows);
    Rollback();
    const Status entered = set_.Follow();
    LS_CHECK(entered.ok());  // its room was reserved
  }

  void Rollback() override {
    stored_.reset();
    n_speculated_ = 0;
  }

  KvWriter Writer(int layer) override { return set_.Writer(layer); }

 private:
  // From behind the set to the store: keys are turned to their own positions.
  void Store(int slot, int position) {
    std::vector<float> key(Z(layout_.head_dim));
    KeyWriter keys(ReindexedStoreLayout(layout_), *kernels_);
    for (int layer = 0; layer < n_layer_; ++layer) {
      const KvSpan from = set_.Span(layer);
      const KvWriter to = stored_->Writer(layer);
      for (int head = 0; head < layout_.n_kv_head; ++head) {
        set_.KeyAt(layer, slot, head, position, key.data());
        keys.Store(key.data(), to, position, head);
        std::memcpy(to.value_row(position, head), from.value_row(slot, head), layout_.v_row_bytes());
      }
    }
  }

  const KvLayout layout_;
  const int n_layer_;
  const kernels::KernelTable* const kernels_;
  const std::unique_ptr<FullCache> store_;
  ReindexedSet set_;
  std::optional<KvTransaction> stored_;  // of the open transaction
  int n_speculated_ = 0;
};

}  // namespace

KvLayout ReindexedStoreLayout(const KvLayout& layout) {
  KvLayout store = layout;
  store.k_type = CacheType::kF32;
  return store;
}

std::unique_ptr<ReindexedCache> MakeReindexedCache(const KvLayout& layout, int n_layer, Rotary rotary,
                                                   const ReindexOptions& options,
                                                   std::shared_ptr<ChunkPool> pool) {
  if (pool == nullptr) pool = MakeHostPool(ReindexedStoreLayout(layout), n_layer);
  return std::make_unique<ReindexedCacheImpl>(layout, n_layer, std::move(rotary), options, std::move(pool));
}

}  // namespace longspec
