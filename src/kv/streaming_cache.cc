// SPDX-License-Identifier: Apache-2.0
#include "kv/streaming_cache.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "kv/copy_slot.h"
#include "kv/key_writer.h"

namespace longspec {
namespace {

// Where a slot's row came from, if not from the position of a followed cache.
constexpr int32_t kOwn = -1;

// Slots [0, sink) hold the sinks, slots [sink, sink + window) the ring; speculated rows lie after the
// committed ones. Ring index (position - anchor) % window; the ring is full, or begins at its index 0.
class StreamingCache final : public WorkingSet {
 public:
  StreamingCache(const KvLayout& layout, int n_layer, int sink, int window, Rotary rotary)
      : layout_(layout),
        n_layer_(n_layer),
        sink_(sink),
        window_(window),
        rotary_(std::move(rotary)),
        anchor_(sink),
        followed_(static_cast<size_t>(sink + window), kOwn) {}

  int length() const override { return length_; }
  int n_slots() const override { return std::min(length_, sink_) + n_recent_; }
  int capacity() const override { return std::numeric_limits<int>::max(); }
  Exactness exactness() const override { return Exactness::kApproximate; }
  size_t bytes() const override {
    return chunks_.size() * chunk_bytes() + sink_keys_.capacity() * sizeof(float) +
           followed_.capacity() * sizeof(int32_t);
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
    // What was turned is copied again where nothing is forgotten: to the bit.
    if (anchor_ != sink_ || (rotates() && shift_ > 0 && length == n_sink + n_recent))
      Disown(0, sink_ + window_);
    anchor_ = sink_;
    if (Status status = MakeRoom(n_sink + n_recent); !status.ok()) return status;
    for (int position = 0; position < n_sink; ++position) CopyFrom(source, position);
    for (int position = length - n_recent; position < length; ++position) CopyFrom(source, position);
    length_ = length;
    n_recent_ = n_recent;
    Disown(n_slots(), sink_ + window_);
    TurnSinks();
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
    TurnSinks();
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
      if (to < sink_) Remember(to);
      Disown(to, to + 1);
      ++length_;
      if (length_ > sink_) n_recent_ = std::min(n_recent_ + 1, window_);
    }
    n_speculated_ = 0;
    TurnSinks();
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
      if (rotates())
        sink_keys_.resize(static_cast<size_t>(sink_ * n_layer_ * layout_.n_kv_head) *
                          static_cast<size_t>(layout_.head_dim));
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
    if (slot < sink_) Remember(slot);
  }

  bool rotates() const { return rotary_.kernels != nullptr && sink_ > 0; }

  float* SinkKey(int slot, int layer, int head) {
    const int at = (slot * n_layer_ + layer) * layout_.n_kv_head + head;
    return sink_keys_.data() + static_cast<size_t>(at) * static_cast<size_t>(layout_.head_dim);
  }

  // A sink's slot holds its key as it was computed.
  void Remember(int slot) {
    if (!rotates()) return;
    for (int layer = 0; layer < n_layer_; ++layer) {
      const KvSpan span = Span(layer);
      for (int head = 0; head < layout_.n_kv_head; ++head) {
        float* const key = SinkKey(slot, layer, head);
        for (int d = 0; d < layout_.head_dim; ++d) key[d] = span.KeyAt(slot, head, d);
      }
    }
    n_turned_ = std::min(n_turned_, slot);
  }

  int Forgotten() const { return length_ - std::min(length_, sink_) - n_recent_; }

  // Turns the sinks to right before the window.
  void TurnSinks() {
    if (!rotates()) return;
    const int n = std::min(length_, sink_), shift = Forgotten();
    if (shift != shift_) n_turned_ = 0;
    if (n_turned_ < n && shift > 0) {
      turn_.resize(static_cast<size_t>(rotary_.n_rot));
      rotary_.row(shift, turn_.data());
      for (float& x : turn_) x = static_cast<float>(static_cast<double>(x) / rotary_.magnitude);
    }
    // Where nothing was turned they are right as they are.
    for (int slot = shift > 0 || shift_ > 0 ? n_turned_ : n; slot < n; ++slot) {
      for (int layer = 0; layer < n_layer_; ++layer) Turn(layer, slot, shift);
    }
    shift_ = shift;
    n_turned_ = n;
  }

  void Turn(int layer, int slot, int shift) {
    const KvWriter to = Writer(layer);
    const auto dim = static_cast<size_t>(layout_.head_dim);
    std::vector<float> key(dim);
    KeyWriter keys(layout_, *rotary_.kernels);
    for (int head = 0; head < layout_.n_kv_head; ++head) {
      std::copy_n(SinkKey(slot, layer, head), dim, key.begin());
      if (shift > 0) rotary_.kernels->rope(key.data(), rotary_.n_rot, turn_.data(), rotary_.pairing);
      keys.Store(key.data(), to, slot, head);
    }
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
  const Rotary rotary_;  // without kernels: nothing is turned
  int length_ = 0;
  int n_recent_ = 0;  // positions [length - n_recent, length) are in the ring
  int anchor_;        // the position of ring index 0, give or take whole windows
  int n_speculated_ = 0;
  std::vector<int32_t> followed_;  // per committed slot: the followed position it is a copy of, or kOwn
  // Keys of the sinks as they were computed, (sink, n_layer, n_kv_head, head_dim), and the positions by which
  // the first n_turned_ of them are turned in their slots.
  std::vector<float> sink_keys_;
  int shift_ = 0, n_turned_ = 0;
  std::vector<float> turn_;  // by so many
  std::vector<AlignedBuffer> chunks_;
  std::vector<std::byte*> bases_;
};

}  // namespace

std::unique_ptr<WorkingSet> MakeStreamingCache(const KvLayout& layout, int n_layer, int sink, int window,
                                               Rotary rotary) {
  LS_CHECK(sink >= 0 && window >= 1);
  return std::make_unique<StreamingCache>(layout, n_layer, sink, window, std::move(rotary));
}

}  // namespace longspec
