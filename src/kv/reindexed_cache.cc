// SPDX-License-Identifier: Apache-2.0
#include "kv/reindexed_cache.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/kv_mover.h"

namespace longspec {
namespace {

class ReindexedCacheImpl final : public ReindexedCache {
 public:
  ReindexedCacheImpl(std::shared_ptr<ChunkPool> pool, Rotary rotary, const ReindexOptions& options,
                     std::shared_ptr<ChunkPool> store)
      : store_(MakeFullCache(std::move(store), std::numeric_limits<int>::max() - kKvChunk)),
        set_(std::move(pool), std::move(rotary), options, {.cache = store_.get()}) {}

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
  const KvMover& mover() const override { return store_->mover(); }

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
    moves_.clear();
    for (int i = 0; i < std::ssize(rows); ++i) {
      LS_CHECK(rows[Z(i)] == i);
      // From behind the set to the store: keys are turned to their own positions.
      const SlotMove move = {.from = n_slots() + i, .to = stored_->base() + i};
      moves_.push_back({.slot = move, .position = move});
    }
    store_->pool().mover().MoveTurned(set_.Span(0), stored_->Writer(0), store_->pool().n_layer(),
                                      set_.rotary(), moves_);
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
  const std::unique_ptr<FullCache> store_;
  ReindexedSet set_;
  std::optional<KvTransaction> stored_;  // of the open transaction
  std::vector<TurnedMove> moves_;        // of a commit
  int n_speculated_ = 0;
};

}  // namespace

KvLayout ReindexedStoreLayout(const KvLayout& layout) {
  KvLayout store = layout;
  store.k_type = CacheType::kF32;
  return store;
}

std::unique_ptr<ReindexedCache> MakeReindexedCache(std::shared_ptr<ChunkPool> pool, Rotary rotary,
                                                   const ReindexOptions& options,
                                                   std::shared_ptr<ChunkPool> store) {
  return std::make_unique<ReindexedCacheImpl>(std::move(pool), std::move(rotary), options, std::move(store));
}

}  // namespace longspec
