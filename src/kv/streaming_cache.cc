// SPDX-License-Identifier: Apache-2.0
#include "kv/streaming_cache.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "kv/copy_slot.h"

namespace longspec {
namespace {

// Where a slot's row came from, if not from the position of a followed cache.
constexpr int32_t kOwn = -1;

// Slots [0, sink) hold the sinks, slots [sink, sink + window) the ring; speculated rows lie after the
// committed ones. Ring index (position - anchor) % window; the ring is full, or begins at its index 0.
class StreamingCache final : public WorkingSet {
 public:
  StreamingCache(const KvLayout& layout, int n_layer, int sink, int window)
      : layout_(layout),
        n_layer_(n_layer),
        sink_(sink),
        window_(window),
        anchor_(sink),
        followed_(static_cast<size_t>(sink + window), kOwn) {}

  int length() const override { return length_; }
  int n_slots() const override { return std::min(length_, sink_) + n_recent_; }
  int capacity() const override { return std::numeric_limits<int>::max(); }
  Exactness exactness() const override { return Exactness::kApproximate; }
  size_t bytes() const override {
    return chunks_.size() * chunk_bytes() + followed_.capacity() * sizeof(int32_t);
  }

  KvSpan Span(int layer) const override {
    KvSpan span;
    span.layout = layout_;
    span.chunks = bases_.data();
    span.layer_offset = static_cast<size_t>(layer) * layout_.layer_bytes();
    span.n_committed = n_slots();
    span.n_speculated = n_speculated_;
    return span;
  }

  Status Follow(const KvCache& source) override {
    LS_CHECK(!transaction_open() && source.n_slots() == source.length());
    const int length = source.length();
    const int n_sink = std::min(length, sink_);
    const int n_recent = std::clamp(length - sink_, 0, window_);
    if (anchor_ != sink_) Disown(0, sink_ + window_);
    anchor_ = sink_;
    if (Status status = MakeRoom(n_sink + n_recent); !status.ok()) return status;
    for (int position = 0; position < n_sink; ++position) CopyFrom(source, position);
    for (int position = length - n_recent; position < length; ++position) CopyFrom(source, position);
    length_ = length;
    n_recent_ = n_recent;
    Disown(n_slots(), sink_ + window_);
    return {};
  }

  void Truncate(int length) override {
    LS_CHECK(length >= 0 && length <= length_ && n_speculated_ == 0);
    const int oldest = length_ - n_recent_;
    const int kept = std::max(0, length - oldest);
    if (kept == 0) {
      anchor_ = std::max(length, sink_);
    } else if (kept < n_recent_) {
      const int begin = (oldest - anchor_) % window_;
      if (begin != 0) {
        RotateRing(begin);
        Disown(sink_, sink_ + window_);
      }
      anchor_ = oldest;
    }
    length_ = length;
    n_recent_ = kept;
    Disown(n_slots(), sink_ + window_);
  }

 protected:
  Status Reserve(int n_rows) override {
    if (Status status = MakeRoom(n_slots() + n_rows); !status.ok()) return status;
    Disown(n_slots(), n_slots() + n_rows);
    n_speculated_ = n_rows;
    return {};
  }

  // A row's new slot is never one that a later row is still to be read from: in a ring that is not full it is
  // at most the row's own slot, or it wrapped around to one before the rows.
  void CommitRows(std::span<const int32_t> rows) override {
    const int first = n_slots();
    for (const int32_t row : rows) {
      const int to = SlotOf(length_);
      Move(first + row, to);
      Disown(to, to + 1);
      ++length_;
      if (length_ > sink_) n_recent_ = std::min(n_recent_ + 1, window_);
    }
    n_speculated_ = 0;
  }

  void Rollback() override { n_speculated_ = 0; }

  KvWriter Writer(int layer) override {
    return {.layout = layout_,
            .chunks = bases_.data(),
            .layer_offset = static_cast<size_t>(layer) * layout_.layer_bytes()};
  }

 private:
  size_t chunk_bytes() const { return static_cast<size_t>(n_layer_) * layout_.layer_bytes(); }

  int SlotOf(int position) const {
    return position < sink_ ? position : sink_ + (position - anchor_) % window_;
  }

  // Chunks for so many slots, and a spare one for RotateRing.
  Status MakeRoom(int n_slots) {
    const auto needed = static_cast<size_t>(std::max(n_slots, sink_ + window_) / kKvChunk + 1);
    try {
      while (chunks_.size() < needed) {
        bases_.reserve(chunks_.size() + 1);
        chunks_.emplace_back(chunk_bytes());
        bases_.push_back(chunks_.back().data());
      }
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for a streaming key-value cache of " + std::to_string(n_slots) +
                               " positions beyond " + std::to_string(bytes() >> 20) + " MiB");
    }
    return {};
  }

  // What slots [begin, end) hold is not (or no longer) a copy of a followed cache's row.
  void Disown(int begin, int end) {
    const auto size = static_cast<int>(followed_.size());
    for (int slot = begin; slot < std::min(end, size); ++slot) followed_[static_cast<size_t>(slot)] = kOwn;
  }

  void CopyFrom(const KvCache& source, int position) {
    const int slot = SlotOf(position);
    int32_t& followed = followed_[static_cast<size_t>(slot)];
    if (followed == position) return;
    for (int layer = 0; layer < n_layer_; ++layer)
      CopySlot(source.Span(layer), position, Writer(layer), slot);
    followed = position;
  }

  void Move(int from, int to) {
    if (from == to) return;
    for (int layer = 0; layer < n_layer_; ++layer) CopySlot(Span(layer), from, Writer(layer), to);
  }

  // Ring index i receives what index i + by held, in cycles.
  void RotateRing(int by) {
    const int spare = sink_ + window_;
    for (int start = 0; start < std::gcd(by, window_); ++start) {
      Move(sink_ + start, spare);
      int to = start;
      for (int from = (to + by) % window_; from != start; from = (to + by) % window_) {
        Move(sink_ + from, sink_ + to);
        to = from;
      }
      Move(spare, sink_ + to);
    }
  }

  const KvLayout layout_;
  const int n_layer_;
  const int sink_;
  const int window_;
  int length_ = 0;
  int n_recent_ = 0;  // positions [length - n_recent, length) are in the ring
  int anchor_;        // the position of ring index 0, give or take whole windows
  int n_speculated_ = 0;
  std::vector<int32_t> followed_;  // per committed slot: the followed position it is a copy of, or kOwn
  std::vector<AlignedBuffer> chunks_;
  std::vector<std::byte*> bases_;
};

}  // namespace

std::unique_ptr<WorkingSet> MakeStreamingCache(const KvLayout& layout, int n_layer, int sink, int window) {
  LS_CHECK(sink >= 0 && window >= 1);
  return std::make_unique<StreamingCache>(layout, n_layer, sink, window);
}

}  // namespace longspec
