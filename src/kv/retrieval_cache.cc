// SPDX-License-Identifier: Apache-2.0
#include "kv/retrieval_cache.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/kv_mover.h"
#include "kv/kv_slots.h"

namespace longspec {
namespace {

constexpr int32_t kNothing = -1;  // in the place of a block

class RetrievalCacheImpl final : public RetrievalCache {
 public:
  RetrievalCacheImpl(std::shared_ptr<ChunkPool> pool, int n_head, const RetrievalOptions& options)
      : layout_(pool->layout()),
        n_layer_(pool->n_layer()),
        options_(options),
        n_blocks_(options.budget / kKeyBlock),
        summaries_(pool->mover().NewSummaries(layout_, n_layer_, n_head, options.score)),
        held_(Z(int64_t{n_layer_} * layout_.n_kv_head * n_blocks_), kNothing),
        slots_(std::move(pool)) {}

  int length() const override { return length_; }
  int n_slots() const override { return n_fixed_ + length_ - recent_begin_; }
  int capacity() const override { return std::numeric_limits<int>::max(); }
  Exactness exactness() const override { return Exactness::kApproximate; }
  size_t bytes() const override {
    return slots_.bytes() + summaries_->bytes() + held_.size() * sizeof(int32_t);
  }

  KvSpan Span(int layer) const override {
    KvSpan span = slots_.span(layer);
    span.n_committed = n_slots();
    span.n_speculated = n_speculated_;
    return span;
  }
  const KvMover& mover() const override { return slots_.mover(); }

  bool wants_queries() const override { return n_blocks_ > 0 && options_.score != BlockScore::kNorm; }

  void SetQueries(std::span<const StateRows> by_layer) override { summaries_->SetQueries(by_layer); }

  Status Follow(const KvCache& source) override {
    LS_CHECK(!transaction_open() && source.n_slots() == source.length());
    const int length = source.length();
    LS_CHECK(length >= followed_);
    const int all = options_.sink + n_blocks_ * kKeyBlock + options_.window + options_.refresh;
    if (n_fixed_ == 0 && length <= all) return lost_ ? HoldEverything(source) : CopyRecent(source);
    if (n_fixed_ > 0 && length - recent_begin_ <= options_.window + options_.refresh)
      return CopyRecent(source);
    return Choose(source, (length - options_.window) / kKeyBlock * kKeyBlock);
  }

  Status Choose(const KvCache& source, int recent_begin) override {
    LS_CHECK(!transaction_open() && recent_begin >= 0 && recent_begin <= source.length());
    summaries_->Follow(source);
    const int first = options_.sink / kKeyBlock, end = recent_begin / kKeyBlock;
    if (end - first < n_blocks_) return HoldEverything(source);
    const int n_fixed = options_.sink + n_blocks_ * kKeyBlock;
    LS_TRY(MakeRoom(n_fixed + source.length() - recent_begin));
    std::vector<BlockMove> moves;
    if (n_fixed_ == 0) AddSink(&moves);
    std::vector<int32_t> best;  // (n_layer, n_kv_head, n_blocks)
    if (n_blocks_ > 0) summaries_->Choose(first, end, n_blocks_, options_.reduce, &best);
    for (int layer = 0; layer < n_layer_; ++layer) {
      for (int head = 0; head < layout_.n_kv_head; ++head) {
        AddBlocks(layer, head, std::span(best).subspan(HeldAt(layer, head), Z(n_blocks_)), &moves);
      }
    }
    MoveBlocks(source, moves);
    n_fixed_ = n_fixed;
    recent_begin_ = followed_ = recent_begin;
    lost_ = false;
    ++work_.choices;
    return CopyRecent(source);
  }

  void Prepare(const KvCache& source) override { summaries_->Follow(source); }

  void Forget(int length) override {
    Drop(std::min(length, length_));
    summaries_->Truncate(length);
  }

  int recent_begin() const override { return recent_begin_; }
  RetrievalWork work() const override {
    RetrievalWork work = work_;
    work.blocks_summarised = summaries_->n_summarised();
    return work;
  }
  std::span<const int32_t> blocks(int layer, int kv_head) const override {
    if (n_fixed_ == 0) return {};
    return std::span(held_).subspan(HeldAt(layer, kv_head), Z(n_blocks_));
  }

  void Truncate(int length) override {
    Drop(length);
    summaries_->Truncate(length);
  }

 protected:
  Status Reserve(int n_rows) override {
    LS_TRY(MakeRoom(n_slots() + n_rows));
    n_speculated_ = n_rows;
    return {};
  }

  void CommitRows(std::span<const int32_t> rows) override {
    CompactRows(n_slots(), rows, &moves_);
    slots_.mover().MoveSlots(slots_.span(), slots_.writer(), n_layer_, moves_);
    length_ += static_cast<int>(rows.size());
    n_speculated_ = 0;
  }

  void Rollback() override { n_speculated_ = 0; }

  KvWriter Writer(int layer) override { return slots_.writer(layer); }

 private:
  // Held positions from `length` on.
  void Drop(int length) {
    LS_CHECK(length >= 0 && length <= length_ && n_speculated_ == 0);
    if (length < recent_begin_) {  // some of what was chosen is gone
      lost_ = true;
      n_fixed_ = 0;
      recent_begin_ = length;
      std::ranges::fill(held_, kNothing);
    }
    length_ = length;
    followed_ = std::min(followed_, length);
  }

  Status MakeRoom(int n_slots) { return slots_.Reserve(n_slots, "a retrieval cache"); }

  // Everything is recent: there is not enough to choose from.
  Status HoldEverything(const KvCache& source) {
    n_fixed_ = recent_begin_ = followed_ = 0;
    lost_ = false;
    std::ranges::fill(held_, kNothing);
    return CopyRecent(source);
  }

  // The positions of `source` beyond those that were copied, over rows of its own.
  Status CopyRecent(const KvCache& source) {
    const int length = source.length();
    LS_TRY(MakeRoom(n_fixed_ + length - recent_begin_));
    moves_.clear();
    for (int p = followed_; p < length; ++p) moves_.push_back({p, n_fixed_ + p - recent_begin_});
    slots_.mover().MoveSlots(source.Span(0), slots_.writer(), n_layer_, moves_);
    work_.positions_copied += length - followed_;
    length_ = followed_ = length;
    return {};
  }

  void AddSink(std::vector<BlockMove>* moves) const {
    for (int layer = 0; layer < n_layer_; ++layer) {
      for (int head = 0; head < layout_.n_kv_head; ++head) {
        for (int slot = 0; slot < options_.sink; slot += kKeyBlock) {
          moves->push_back({.layer = layer, .kv_head = head, .from = slot, .to = slot});
        }
      }
    }
  }

  // Of blocks that are not held where they are to be.
  void AddBlocks(int layer, int head, std::span<const int32_t> blocks, std::vector<BlockMove>* moves) const {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (held_[HeldAt(layer, head) + i] == blocks[i]) continue;
      moves->push_back({.layer = layer,
                        .kv_head = head,
                        .from = blocks[i] * kKeyBlock,
                        .to = options_.sink + static_cast<int>(i) * kKeyBlock});
    }
  }

  void MoveBlocks(const KvCache& source, std::span<const BlockMove> moves) {
    slots_.mover().MoveBlocks(source.Span(0), slots_.writer(), moves);
    for (const BlockMove& move : moves) {
      if (move.to < options_.sink) continue;
      const int block = (move.to - options_.sink) / kKeyBlock;
      held_[HeldAt(move.layer, move.kv_head) + Z(block)] = move.from / kKeyBlock;
      ++work_.blocks_copied;
    }
  }

  size_t HeldAt(int layer, int head) const {
    return Z((int64_t{layer} * layout_.n_kv_head + head) * n_blocks_);
  }

  const KvLayout layout_;
  const int n_layer_;
  const RetrievalOptions options_;
  const int n_blocks_;  // that are chosen
  int n_fixed_ = 0;     // slots of sink and chosen blocks; 0: everything is recent
  int recent_begin_ = 0, length_ = 0;
  int followed_ = 0;   // recent positions before it are the source's
  bool lost_ = false;  // positions before recent_begin_ are nowhere
  int n_speculated_ = 0;
  RetrievalWork work_;
  const std::unique_ptr<BlockSummaries> summaries_;
  std::vector<int32_t> held_;  // (n_layer, n_kv_head, n_blocks): what the fixed slots hold
  KvSlots slots_;
  std::vector<SlotMove> moves_;  // of one call
};

}  // namespace

WorkingSetMemory PlanRetrievalCache(const KvLayout& layout, int n_layer, int n_head,
                                    const RetrievalOptions& options, int most_rows, int n_query_rows) {
  const auto u = [](int n) { return static_cast<uint64_t>(n); };
  const uint64_t slots =
      u(options.sink) + u(options.budget) + u(options.window) + u(options.refresh) + kKeyBlock + u(most_rows);
  // What the target hands over, and its copy.
  const uint64_t queries = 2 * u(n_query_rows) * u(n_layer) * u(n_head) * u(layout.head_dim) * sizeof(float);
  const uint64_t held = u(n_layer) * u(layout.n_kv_head) * u(options.budget / kKeyBlock) * sizeof(int32_t);
  return {.fixed = (slots / kKvChunk + 1) * u(n_layer) * layout.layer_bytes() + queries + held,
          .source_chunk = BlockSummaries::BytesOf(kKvChunk / kKeyBlock, layout, n_layer, options.score)};
}

std::unique_ptr<RetrievalCache> MakeRetrievalCache(std::shared_ptr<ChunkPool> pool, int n_head,
                                                   const RetrievalOptions& options) {
  LS_CHECK(options.sink >= 0 && options.sink % kKeyBlock == 0 && options.budget >= 0);
  LS_CHECK(options.window >= 1 && options.refresh >= 0 && n_head % pool->layout().n_kv_head == 0);
  return std::make_unique<RetrievalCacheImpl>(std::move(pool), n_head, options);
}

}  // namespace longspec
