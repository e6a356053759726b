// SPDX-License-Identifier: Apache-2.0
#include "kv/full_cache.h"

#include <new>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "kv/copy_slot.h"

namespace longspec {
namespace {

class FullCache final : public KvCache {
 public:
  FullCache(const KvLayout& layout, int n_layer, int capacity)
      : layout_(layout), n_layer_(n_layer), capacity_(capacity) {}

  int length() const override { return length_; }
  int capacity() const override { return capacity_; }
  Exactness exactness() const override { return Exactness::kLossless; }
  size_t bytes() const override { return chunks_.size() * FullCacheChunkBytes(layout_, n_layer_); }

  KvSpan Span(int layer) const override {
    KvSpan span;
    span.layout = layout_;
    span.chunks = bases_.data();
    span.layer_offset = static_cast<size_t>(layer) * layout_.layer_bytes();
    span.n_committed = length_;
    span.n_speculated = n_speculated_;
    return span;
  }

  void Truncate(int length) override {
    LS_CHECK(length >= 0 && length <= length_ && n_speculated_ == 0);
    length_ = length;
    // Memory follows use: chunks that hold nothing any more go back.
    const auto needed = static_cast<size_t>((length + kKvChunk - 1) / kKvChunk);
    chunks_.resize(needed);
    bases_.resize(needed);
  }

 protected:
  Status Reserve(int n_rows) override {
    const auto needed = static_cast<size_t>((length_ + n_rows + kKvChunk - 1) / kKvChunk);
    try {
      while (chunks_.size() < needed) {
        chunks_.emplace_back(FullCacheChunkBytes(layout_, n_layer_));
        bases_.push_back(chunks_.back().data());
      }
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for the key-value cache beyond " + std::to_string(bytes() >> 20) +
                               " MiB (" + std::to_string(length_) +
                               " positions); a smaller --ctx-size or a smaller type " +
                               "(--cache-type-k/-v q8_0) needs less");
    }
    n_speculated_ = n_rows;
    return {};
  }

  void CommitRows(std::span<const int32_t> rows) override {
    int to = length_;
    for (const int32_t row : rows) {
      if (length_ + row != to) Move(length_ + row, to);
      ++to;
    }
    length_ = to;
    n_speculated_ = 0;
  }

  void Rollback() override { n_speculated_ = 0; }

 private:
  // Copies slot `from` to slot `to` in every layer.
  void Move(int from, int to) {
    for (int layer = 0; layer < n_layer_; ++layer) {
      const KvSpan span = Span(layer);
      CopySlot(span, from, span, to);
    }
  }

  const KvLayout layout_;
  const int n_layer_;
  const int capacity_;
  int length_ = 0;
  int n_speculated_ = 0;
  std::vector<AlignedBuffer> chunks_;
  std::vector<std::byte*> bases_;
};

}  // namespace

size_t FullCacheChunkBytes(const KvLayout& layout, int n_layer) {
  return static_cast<size_t>(n_layer) * layout.layer_bytes();
}

std::unique_ptr<KvCache> MakeFullCache(const KvLayout& layout, int n_layer, int capacity) {
  return std::make_unique<FullCache>(layout, n_layer, capacity);
}

}  // namespace longspec
