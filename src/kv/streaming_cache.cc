// SPDX-License-Identifier: Apache-2.0
#include "kv/streaming_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "kv/kv_mover.h"
#include "kv/kv_slots.h"

namespace longspec {
namespace {

// Where a slot's row came from, if not from the position of a followed cache.
constexpr int32_t kOwn = -1;

// Slots [0, sink) hold the sinks, slots [sink, sink + window) the ring; speculated rows lie after the
// committed ones. Ring index (position - anchor) % window; the ring is full, or begins at its index 0.
class StreamingCache final : public WorkingSet {
 public:
  StreamingCache(std::shared_ptr<ChunkPool> pool, int sink, int window, Rotary rotary)
      : slots_(std::move(pool)),
        sink_(sink),
        window_(window),
        rotary_(std::move(rotary)),
        anchor_(sink),
        followed_(Z(sink + window), kOwn),
        sink_keys_(rotates() ? Z(sink) * KeyFloats() : 0) {}

  int length() const override { return length_; }
  int n_slots() const override { return std::min(length_, sink_) + n_recent_; }
  int capacity() const override { return std::numeric_limits<int>::max(); }
  Exactness exactness() const override { return Exactness::kApproximate; }
  size_t bytes() const override {
    return slots_.bytes() + sink_keys_.capacity() * sizeof(float) + followed_.capacity() * sizeof(int32_t);
  }

  KvSpan Span(int layer) const override {
    KvSpan span = slots_.span(layer);
    span.n_committed = n_slots();
    span.n_speculated = n_speculated_;
    return span;
  }
  const KvMover& mover() const override { return slots_.mover(); }

  Status Follow(const KvCache& source) override {
    LS_CHECK(!transaction_open() && source.n_slots() == source.length());
    const int length = source.length();
    const int n_sink = std::min(length, sink_);
    const int n_recent = std::clamp(length - sink_, 0, window_);
    // What was turned is copied again where nothing is forgotten: to the bit.
    if (anchor_ != sink_ || (rotates() && shift_ > 0 && length == n_sink + n_recent))
      Disown(0, sink_ + window_);
    anchor_ = sink_;
    LS_TRY(MakeRoom(n_sink + n_recent));
    moves_.clear();
    for (int position = 0; position < n_sink; ++position) Want(position);
    for (int position = length - n_recent; position < length; ++position) Want(position);
    slots_.mover().MoveSlots(source.Span(0), slots_.writer(), slots_.n_layer(), moves_);
    for (const SlotMove& move : moves_) {
      followed_[Z(move.to)] = move.from;
      if (move.to < sink_) Remember(move.to);
    }
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
    LS_TRY(MakeRoom(n_slots() + n_rows));
    Disown(n_slots(), n_slots() + n_rows);
    n_speculated_ = n_rows;
    return {};
  }

  // A row's new slot is never one that a later row is still to be read from: in a ring that is not full it is
  // at most the row's own slot, or it wrapped around to one before the rows.
  void CommitRows(std::span<const int32_t> rows) override {
    const int first = n_slots(), begin = length_, end = begin + static_cast<int>(rows.size());
    moves_.clear();
    for (int position = begin; position < end; ++position) {
      const SlotMove move = {.from = first + rows[Z(position - begin)], .to = SlotOf(position)};
      if (move.from != move.to) moves_.push_back(move);
    }
    MoveAmongThemselves();
    for (int position = begin; position < end; ++position) {
      const int slot = SlotOf(position);
      if (slot < sink_) Remember(slot);
      Disown(slot, slot + 1);
    }
    n_recent_ = std::min(n_recent_ + std::max(0, end - std::max(begin, sink_)), window_);
    length_ = end;
    n_speculated_ = 0;
    TurnSinks();
  }

  void Rollback() override { n_speculated_ = 0; }

  KvWriter Writer(int layer) override { return slots_.writer(layer); }

 private:
  // Of the keys of one slot.
  size_t KeyFloats() const {
    const KvLayout& layout = slots_.layout();
    return Z(int64_t{slots_.n_layer()} * layout.n_kv_head * layout.head_dim);
  }

  int SlotOf(int position) const {
    return position < sink_ ? position : sink_ + (position - anchor_) % window_;
  }

  // And a spare slot for RotateRing.
  Status MakeRoom(int n_slots) {
    return slots_.Reserve(std::max(n_slots, sink_ + window_) + 1, "a streaming key-value cache");
  }

  // What slots [begin, end) hold is not (or no longer) a copy of a followed cache's row.
  void Disown(int begin, int end) {
    const auto size = static_cast<int>(followed_.size());
    for (int slot = begin; slot < std::min(end, size); ++slot) followed_[Z(slot)] = kOwn;
  }

  // Of a followed cache.
  void Want(int position) {
    const int slot = SlotOf(position);
    if (followed_[Z(slot)] != position) moves_.push_back({.from = position, .to = slot});
  }

  bool rotates() const { return rotary_.kernels != nullptr && sink_ > 0; }

  float* SinkKeys(int slot) { return sink_keys_.data() + Z(slot) * KeyFloats(); }

  // A sink's slot holds its key as it was computed.
  void Remember(int slot) {
    if (!rotates()) return;
    slots_.mover().ReadKeys(slots_.span(), slots_.n_layer(), slot, SinkKeys(slot));
    n_turned_ = std::min(n_turned_, slot);
  }

  int Forgotten() const { return length_ - std::min(length_, sink_) - n_recent_; }

  // Turns the sinks to right before the window.
  void TurnSinks() {
    if (!rotates()) return;
    const int n = std::min(length_, sink_), shift = Forgotten();
    if (shift != shift_) n_turned_ = 0;
    // Where nothing was turned they are right as they are.
    if (n_turned_ < n && (shift > 0 || shift_ > 0)) {
      slots_.mover().WriteKeys(slots_.writer(), slots_.n_layer(), n_turned_, n - n_turned_, rotary_, shift,
                               SinkKeys(n_turned_));
    }
    shift_ = shift;
    n_turned_ = n;
  }

  void MoveAmongThemselves() {
    slots_.mover().MoveSlots(slots_.span(), slots_.writer(), slots_.n_layer(), moves_);
  }

  // Ring index i receives what index i + by held, in cycles.
  void RotateRing(int by) {
    const int spare = sink_ + window_;
    moves_.clear();
    for (int start = 0; start < std::gcd(by, window_); ++start) {
      moves_.push_back({.from = sink_ + start, .to = spare});
      int to = start;
      for (int from = (to + by) % window_; from != start; from = (to + by) % window_) {
        moves_.push_back({.from = sink_ + from, .to = sink_ + to});
        to = from;
      }
      moves_.push_back({.from = spare, .to = sink_ + to});
    }
    MoveAmongThemselves();
  }

  KvSlots slots_;
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
  std::vector<SlotMove> moves_;  // of one call
};

}  // namespace

std::unique_ptr<WorkingSet> MakeStreamingCache(std::shared_ptr<ChunkPool> pool, int sink, int window,
                                               Rotary rotary) {
  LS_CHECK(sink >= 0 && window >= 1);
  return std::make_unique<StreamingCache>(std::move(pool), sink, window, std::move(rotary));
}

}  // namespace longspec
