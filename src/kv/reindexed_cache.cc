// SPDX-License-Identifier: Apache-2.0
#include "kv/reindexed_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

class ReindexedCacheImpl final : public ReindexedCache {
 public:
  ReindexedCacheImpl(const KvLayout& layout, int n_layer, Rotary rotary, const ReindexOptions& options)
      : layout_(layout),
        n_layer_(n_layer),
        rotary_(std::move(rotary)),
        options_(options),
        turn_(Z(rotary_.n_rot)) {}

  int length() const override { return length_; }
  int n_slots() const override { return static_cast<int>(held_.size()); }
  int next_position() const override { return n_slots(); }
  int capacity() const override { return std::numeric_limits<int>::max(); }
  Exactness exactness() const override { return Exactness::kApproximate; }
  size_t bytes() const override {
    return slots_.size() * Z(n_layer_) * layout_.layer_bytes() +
           store_.size() * (n_keys(kKvChunk) * sizeof(float) + value_bytes(kKvChunk)) +
           held_.capacity() * sizeof(int32_t);
  }

  KvSpan Span(int layer) const override {
    return {.layout = layout_,
            .chunks = bases_.data(),
            .layer_offset = Z(layer) * layout_.layer_bytes(),
            .n_committed = n_slots(),
            .n_speculated = n_speculated_};
  }

  // Positions are cut off from the end, which is in the set. Where so much is cut that the newest chunk is
  // not, the set is the last chunks; if there is no memory for them, the next Begin says so.
  void Truncate(int length) override {
    LS_CHECK(length >= 0 && length <= length_ && n_speculated_ == 0);
    length_ = length;
    store_.resize(StoreChunks(length));
    while (!held_.empty() && held_.back() >= length) held_.pop_back();
    while (!chunks_.empty() && int64_t{chunks_.back()} * options_.chunk >= length) chunks_.pop_back();
    if (length == 0 || (!chunks_.empty() && chunks_.back() == NewestChunk())) return;
    held_.clear();
    chunks_.clear();
    (void)HoldLast(options_.n_chunks);
  }

  Status Choose(std::span<const float> scores) override {
    LS_CHECK(!transaction_open());
    if (length_ == 0 || sees_all_) return {};
    const int n_chunks = NewestChunk() + 1;
    std::vector<double> mean(Z(n_chunks));
    for (int c = 0; c < n_chunks; ++c) {
      const int begin = c * options_.chunk, end = std::min(begin + options_.chunk, length_);
      for (int p = begin; p < std::min<int>(end, static_cast<int>(scores.size())); ++p) {
        mean[Z(c)] += static_cast<double>(scores[Z(p)]);
      }
      mean[Z(c)] /= end - begin;
    }
    std::vector<int32_t> best(Z(n_chunks));
    std::iota(best.begin(), best.end(), 0);
    std::ranges::stable_sort(best, [&](int32_t a, int32_t b) { return mean[Z(a)] > mean[Z(b)]; });
    best.resize(std::min(best.size(), Z(options_.n_chunks)));
    std::ranges::sort(best);
    if (best.back() != n_chunks - 1) best.push_back(n_chunks - 1);
    return Hold(best);
  }

  Status HoldLast(int n_chunks) override {
    std::vector<int32_t> last;
    const int end = length_ == 0 ? 0 : NewestChunk() + 1;
    for (int c = sees_all_ ? 0 : std::max(0, end - n_chunks); c < end; ++c) last.push_back(c);
    return Hold(last);
  }

  Status HoldPromptWindow() override {
    const int n_chunks = (options_.prefill_window + options_.chunk - 1) / options_.chunk + 1;
    return sees_all_ || n_slots() <= n_chunks * options_.chunk ? Status() : HoldLast(n_chunks);
  }

  Status SeeAll(bool all) override {
    LS_CHECK(!transaction_open());
    if (all == sees_all_) return {};
    sees_all_ = all;
    return HoldLast(options_.n_chunks);
  }

  std::span<const int32_t> chunks() const override { return chunks_; }

 protected:
  // What a long prompt leaves in the set is cut to what its next rows are to see.
  Status Reserve(int n_rows) override {
    if (held_.empty() && length_ > 0) LS_TRY(HoldLast(options_.n_chunks));
    if (n_rows >= options_.prompt_rows) LS_TRY(HoldPromptWindow());
    LS_TRY(MakeRoom(n_slots() + n_rows, length_ + n_rows));
    n_speculated_ = n_rows;
    return {};
  }

  // REQUIRES (of callers): kept rows are a chain from the first on, so that row i stands at the i-th
  // position.
  void CommitRows(std::span<const int32_t> rows) override {
    const int first = n_slots();
    for (size_t i = 0; i < rows.size(); ++i) {
      LS_CHECK(rows[i] == static_cast<int32_t>(i));
      Store(first + static_cast<int>(i), length_);
      held_.push_back(length_++);
    }
    n_speculated_ = 0;
    if (!rows.empty() && (chunks_.empty() || chunks_.back() != NewestChunk())) AddNewChunks();
  }

  void Rollback() override { n_speculated_ = 0; }

  KvWriter Writer(int layer) override {
    return {.layout = layout_, .chunks = bases_.data(), .layer_offset = Z(layer) * layout_.layer_bytes()};
  }

 private:
  int NewestChunk() const { return (length_ - 1) / options_.chunk; }
  // The store, so many positions at a time: it grows without being moved.
  struct StoreChunk {
    std::vector<float> keys;        // (kKvChunk, n_layer, n_kv_head, head_dim), not rotated
    std::vector<std::byte> values;  // (kKvChunk, n_layer, n_kv_head) rows
  };
  static size_t StoreChunks(int length) { return Z((length + kKvChunk - 1) / kKvChunk); }
  size_t n_keys(int positions) const {
    return Z(int64_t{positions} * n_layer_ * layout_.n_kv_head) * Z(layout_.head_dim);
  }
  size_t value_bytes(int positions) const {
    return Z(int64_t{positions} * n_layer_ * layout_.n_kv_head) * layout_.v_row_bytes();
  }
  size_t PlaceOf(int position, int layer, int head) const {
    return Z((int64_t{position % kKvChunk} * n_layer_ + layer) * layout_.n_kv_head + head);
  }
  float* KeyAt(int position, int layer, int head) {
    return store_[Z(position / kKvChunk)].keys.data() + PlaceOf(position, layer, head) * Z(layout_.head_dim);
  }
  std::byte* ValueAt(int position, int layer, int head) {
    return store_[Z(position / kKvChunk)].values.data() +
           PlaceOf(position, layer, head) * layout_.v_row_bytes();
  }

  // For slots of the set, and positions of the store. What is committed then takes no memory.
  Status MakeRoom(int n_slots, int n_stored) {
    try {
      held_.reserve(std::max(held_.capacity(), Z(n_slots)));
      chunks_.reserve(std::max(chunks_.capacity(), Z(n_stored / options_.chunk + 1)));
      store_.reserve(std::max(store_.capacity(), StoreChunks(n_stored)));
      while (store_.size() < StoreChunks(n_stored)) {
        store_.push_back({.keys = std::vector<float>(n_keys(kKvChunk)),
                          .values = std::vector<std::byte>(value_bytes(kKvChunk))});
      }
      while (std::ssize(slots_) * kKvChunk < n_slots) {
        bases_.reserve(slots_.size() + 1);
        slots_.emplace_back(Z(n_layer_) * layout_.layer_bytes());
        bases_.push_back(slots_.back().data());
      }
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory for a draft's working cache of " + std::to_string(n_slots) +
                               " positions");
    }
    return {};
  }

  void AddNewChunks() {
    for (int c = chunks_.empty() ? 0 : chunks_.back() + 1; c <= NewestChunk(); ++c) chunks_.push_back(c);
  }

  // Makes the set these chunks. A slot that holds the right position already is left as it is.
  Status Hold(std::span<const int32_t> chunks) {
    std::vector<int32_t> wanted;
    for (const int32_t c : chunks) {
      for (int p = c * options_.chunk; p < std::min((c + 1) * options_.chunk, length_); ++p)
        wanted.push_back(p);
    }
    LS_TRY(MakeRoom(static_cast<int>(wanted.size()), length_));
    for (size_t slot = 0; slot < wanted.size(); ++slot) {
      if (slot < held_.size() && held_[slot] == wanted[slot]) continue;
      Load(wanted[slot], static_cast<int>(slot));
    }
    held_ = std::move(wanted);
    chunks_.assign(chunks.begin(), chunks.end());
    return {};
  }

  // From the set to the store: keys are turned back by the position of their slot.
  void Store(int slot, int position) {
    rotary_.row(slot, turn_.data());
    const auto scale = static_cast<float>(1.0 / (rotary_.magnitude * rotary_.magnitude));
    for (size_t i = 0; i < turn_.size(); i += 2) {
      turn_[i] *= scale;
      turn_[i + 1] *= -scale;
    }
    for (int layer = 0; layer < n_layer_; ++layer) {
      const KvSpan span = Span(layer);
      for (int head = 0; head < layout_.n_kv_head; ++head) {
        float* key = KeyAt(position, layer, head);
        for (int d = 0; d < layout_.head_dim; ++d) key[d] = span.KeyAt(slot, head, d);
        rotary_.kernels->rope(key, rotary_.n_rot, turn_.data(), rotary_.pairing);
        std::memcpy(ValueAt(position, layer, head), span.value_row(slot, head), layout_.v_row_bytes());
      }
    }
  }

  // From the store to the set: keys are turned to the position of their slot, values copied.
  void Load(int position, int slot) {
    rotary_.row(slot, turn_.data());
    std::vector<float> key(Z(layout_.head_dim)), no_value(key.size());
    for (int layer = 0; layer < n_layer_; ++layer) {
      const KvWriter to = Writer(layer);
      for (int head = 0; head < layout_.n_kv_head; ++head) {
        std::copy_n(KeyAt(position, layer, head), key.size(), key.begin());
        rotary_.kernels->rope(key.data(), rotary_.n_rot, turn_.data(), rotary_.pairing);
        rotary_.kernels->store_kv({.k = key.data(),
                                   .v = no_value.data(),
                                   .keys = to.keys(slot / kKvChunk, head),
                                   .values = to.values(slot / kKvChunk, head),
                                   .offset = slot % kKvChunk,
                                   .head_dim = layout_.head_dim,
                                   .k_type = KernelType(layout_.k_type),
                                   .v_type = KernelType(layout_.v_type)});
        std::memcpy(to.value_row(slot, head), ValueAt(position, layer, head), layout_.v_row_bytes());
      }
    }
  }

  const KvLayout layout_;
  const int n_layer_;
  const Rotary rotary_;
  const ReindexOptions options_;
  bool sees_all_ = false;
  int length_ = 0;
  int n_speculated_ = 0;
  std::vector<StoreChunk> store_;  // of all positions
  std::vector<int32_t> held_;      // by slot: the position
  std::vector<int32_t> chunks_;
  std::vector<AlignedBuffer> slots_;
  std::vector<std::byte*> bases_;
  std::vector<float> turn_;
};

}  // namespace

std::unique_ptr<ReindexedCache> MakeReindexedCache(const KvLayout& layout, int n_layer, Rotary rotary,
                                                   const ReindexOptions& options) {
  LS_CHECK(rotary.kernels != nullptr && rotary.row && options.chunk > 0 && options.n_chunks > 0);
  return std::make_unique<ReindexedCacheImpl>(layout, n_layer, std::move(rotary), options);
}

}  // namespace longspec
