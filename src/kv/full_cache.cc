// SPDX-License-Identifier: Apache-2.0
#include "kv/full_cache.h"

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "kv/kv_mover.h"

namespace longspec {
namespace {

size_t Chunks(int positions) { return static_cast<size_t>((positions + kKvChunk - 1) / kKvChunk); }

class FullCacheImpl final : public FullCache {
 public:
  FullCacheImpl(std::shared_ptr<ChunkPool> pool, int capacity)
      : pool_(std::move(pool)), capacity_(capacity) {}

  int length() const override { return length_; }
  int capacity() const override { return capacity_; }
  Exactness exactness() const override { return Exactness::kLossless; }
  size_t bytes() const override { return chunks_.size() * pool_->chunk_bytes(); }

  KvSpan Span(int layer) const override {
    return {.layout = pool_->layout(),
            .chunks = bases_.data(),
            .layer_offset = static_cast<size_t>(layer) * pool_->layout().layer_bytes(),
            .n_committed = length_,
            .n_speculated = n_speculated_};
  }

  void Truncate(int length) override {
    LS_CHECK(length >= 0 && length <= length_ && n_speculated_ == 0);
    length_ = length;
    // Memory follows use: chunks that hold nothing any more go back.
    chunks_.resize(Chunks(length));
    bases_.resize(Chunks(length));
  }

  std::unique_ptr<FullCache> Fork() const override {
    auto fork = std::make_unique<FullCacheImpl>(pool_, capacity_);
    fork->Adopt(chunks(), length_);
    return fork;
  }

  void Adopt(std::span<const KvChunkRef> chunks, int length) override {
    LS_CHECK(n_speculated_ == 0 && length <= capacity_ && chunks.size() == Chunks(length));
    chunks_.assign(chunks.begin(), chunks.end());
    bases_.clear();
    for (const KvChunkRef& chunk : chunks_) bases_.push_back(chunk->data());
    length_ = length;
  }

  std::span<const KvChunkRef> chunks() const override { return std::span(chunks_).first(Chunks(length_)); }

  ChunkPool& pool() const override { return *pool_; }

  void Prefetch(int layer) const override {
    const size_t bytes = pool_->layout().layer_bytes();
    for (const KvChunkRef& chunk : chunks()) chunk->Prefetch(static_cast<size_t>(layer) * bytes, bytes);
  }

 protected:
  Status Reserve(int n_rows) override {
    const auto last = static_cast<size_t>(length_ / kKvChunk);  // the chunk that has room, if there is one
    KvChunkRef own;                                             // in its place, if others hold it too
    if (last < chunks_.size() && chunks_[last].use_count() > 1) {
      LS_ASSIGN(own, pool_->Copy(chunks_[last], length_ % kKvChunk));
    }
    while (chunks_.size() < Chunks(length_ + n_rows)) {
      auto chunk = pool_->Take();
      if (!chunk.ok()) {
        Rollback();  // others may need what was taken
        return chunk.status();
      }
      bases_.reserve(chunks_.size() + 1);
      chunks_.push_back(*std::move(chunk));
      bases_.push_back(chunks_.back()->data());
    }
    if (own != nullptr) {
      chunks_[last] = std::move(own);
      bases_[last] = chunks_[last]->data();
    }
    n_speculated_ = n_rows;
    return {};
  }

  KvWriter Writer(int layer) override {
    return {.layout = pool_->layout(),
            .chunks = bases_.data(),
            .layer_offset = static_cast<size_t>(layer) * pool_->layout().layer_bytes()};
  }

  void CommitRows(std::span<const int32_t> rows) override {
    CompactRows(length_, rows, &moves_);
    pool_->mover().MoveSlots(Span(0), Writer(0), pool_->n_layer(), moves_);
    length_ += static_cast<int>(rows.size());
    Rollback();
  }

  // Chunks that only rows which were not kept lie in go back.
  void Rollback() override {
    n_speculated_ = 0;
    chunks_.resize(Chunks(length_));
    bases_.resize(Chunks(length_));
  }

 private:
  const std::shared_ptr<ChunkPool> pool_;
  const int capacity_;
  int length_ = 0;
  int n_speculated_ = 0;
  std::vector<KvChunkRef> chunks_;
  std::vector<std::byte*> bases_;
  std::vector<SlotMove> moves_;  // of a commit
};

}  // namespace

std::unique_ptr<FullCache> MakeFullCache(std::shared_ptr<ChunkPool> pool, int capacity) {
  return std::make_unique<FullCacheImpl>(std::move(pool), capacity);
}

std::unique_ptr<FullCache> MakeFullCache(const KvLayout& layout, int n_layer, int capacity) {
  return MakeFullCache(MakeHostPool(layout, n_layer), capacity);
}

}  // namespace longspec
