// SPDX-License-Identifier: Apache-2.0
#include "draft/window_attention.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace longspec {
namespace {

constexpr int kTileRows = 16;
// The stored chunks are cut into so many parts, merged in order afterwards: a fixed number, so that memory
// does not grow with the context and threads do not change the result.
constexpr int kSplits = 8;
constexpr float kUnseen = -std::numeric_limits<float>::infinity();  // a score whose weight is zero

// A softmax state over no keys: merging another one into it gives that one. Over any keys the sum is 1 or
// more, or no number, and then the outputs must not be numbers either.
void MakeEmpty(float* state) {
  state[0] = kUnseen;
  state[1] = 0.0F;
}
bool IsEmpty(const float* state) { return state[1] == 0.0F; }

size_t Z(int64_t n) { return static_cast<size_t>(n); }

int Blocks(int keys) { return (keys + kKeyBlock - 1) / kKeyBlock; }

}  // namespace

WindowAttention::WindowAttention(const kernels::KernelTable* kernels, const AttentionShape& shape,
                                 int n_threads)
    : kernels_(kernels), shape_(shape), scratch_(Z(n_threads)) {}

size_t WindowAttention::bytes() const {
  size_t n = states_.capacity() * sizeof(float);
  for (const Scratch& s : scratch_) {
    n += (s.scores.capacity() + s.states.capacity() + s.tail_scores.capacity()) * sizeof(float);
    n += (s.lows.capacity() + s.counts.capacity()) * sizeof(int);
  }
  return n;
}

void WindowAttention::Plan(const StoredKeys& stored, const KvSpan* tail, int n_tail,
                           std::span<const RowView> rows) {
  stored_ = stored;
  tail_ = tail;
  n_tail_ = n_tail;
  rows_ = rows;
  int begin = std::numeric_limits<int>::max(), end = 0;
  for (const RowView& row : rows) {
    LS_CHECK(row.begin <= row.end && row.tail.size() <= Z(kKvChunk));
    begin = std::min(begin, row.begin);
    end = std::max(end, row.end);
  }
  first_chunk_ = begin / kKvChunk;
  end_chunk_ = std::max(first_chunk_, (end + kKvChunk - 1) / kKvChunk);

  const size_t group = Z(shape_.group()), tile_heads = kTileRows * group;
  const size_t tail_chunks = Z((n_tail + kKvChunk - 1) / kKvChunk);
  for (Scratch& s : scratch_) {
    s.scores.resize(std::max(s.scores.size(), tile_heads * kKvChunk));
    s.states.resize(std::max(s.states.size(), tile_heads * state_floats()));
    s.tail_scores.resize(std::max(s.tail_scores.size(), tail_chunks * group * kKvChunk));
    s.lows.resize(tile_heads);
    s.counts.resize(tile_heads);
  }
  const size_t floats = Z(shape_.n_kv_head) * kSplits * rows.size() * group * state_floats();
  states_.resize(std::max(states_.size(), floats));
}

float* WindowAttention::SplitState(int kv_head, int split, int row) const {
  const size_t index = (Z(kv_head) * kSplits + Z(split)) * rows_.size() + Z(row);
  return states_.data() + index * Z(shape_.group()) * state_floats();
}

// The keys of one chunk that each row sees, as finished softmax states; a row that sees none has an empty
// one. Keys below a row's range get a weight of exactly zero.
void WindowAttention::AttendChunk(const Tile& tile, int chunk, const float* q, Scratch& own, float* states) {
  const int group = shape_.group(), n = (tile.row_end - tile.row_begin) * group;
  int least = kKvChunk, most = 0;
  for (int i = 0; i < n; ++i) {
    const RowView& row = rows_[Z(tile.row_begin + i / group)];
    const int low = std::clamp(row.begin - chunk * kKvChunk, 0, kKvChunk);
    const int count = std::clamp(row.end - chunk * kKvChunk, 0, kKvChunk);
    own.lows[Z(i)] = low;
    own.counts[Z(i)] = count > low ? count : 0;
    if (count <= low) continue;
    least = std::min(least, low);
    most = std::max(most, count);
  }
  for (int i = 0; i < n; ++i) {
    float* state = states + Z(i) * state_floats();
    std::fill_n(state, state_floats(), 0.0F);
    MakeEmpty(state);
  }
  if (most == 0) return;
  const KvLayout& layout = stored_.span.layout;
  kernels_->scores(
      {.keys = stored_.keys(chunk, tile.kv_head),
       .q = q + (Z(tile.kv_head) * rows_.size() + Z(tile.row_begin)) * Z(group) * Z(shape_.head_dim),
       .out = own.scores.data(),
       .out_stride = kKvChunk,
       .scale = shape_.scale,
       .n_rows = n,
       .head_dim = shape_.head_dim,
       .block_begin = least / kKeyBlock,
       .block_end = Blocks(most),
       .type = KernelType(layout.k_type)});
  for (int i = 0; i < n; ++i) {
    if (own.counts[Z(i)] == 0) continue;
    float* scores = own.scores.data() + Z(i) * kKvChunk;
    std::fill_n(scores, own.lows[Z(i)], kUnseen);
    kernels_->softmax_chunk(scores, own.counts[Z(i)], states + Z(i) * state_floats());
  }
  kernels_->values({.values = stored_.values(chunk, tile.kv_head),
                    .p = own.scores.data(),
                    .p_stride = kKvChunk,
                    .o = states + kernels::kStateHeader,
                    .o_stride = static_cast<int64_t>(state_floats()),
                    .n_keys = own.counts.data(),
                    .n_rows = n,
                    .head_dim = shape_.head_dim,
                    .type = KernelType(layout.v_type)});
}

void WindowAttention::AttendSplit(const Tile& tile, int split, const float* q, Scratch& own) {
  const int n_chunks = end_chunk_ - first_chunk_, n = (tile.row_end - tile.row_begin) * shape_.group();
  const auto border = [&](int i) { return first_chunk_ + static_cast<int>(int64_t{n_chunks} * i / kSplits); };
  float* states = SplitState(tile.kv_head, split, tile.row_begin);
  for (int i = 0; i < n; ++i) MakeEmpty(states + Z(i) * state_floats());
  for (int chunk = border(split); chunk < border(split + 1); ++chunk) {
    const bool first = chunk == border(split);
    float* chunk_states = first ? states : own.states.data();
    AttendChunk(tile, chunk, q, own, chunk_states);
    if (first) continue;
    for (int i = 0; i < n; ++i) {
      if (own.counts[Z(i)] == 0) continue;
      kernels_->merge_state(states + Z(i) * state_floats(), chunk_states + Z(i) * state_floats(),
                            shape_.head_dim);
    }
  }
}

// The tail of one row, for all query heads of a KV head: states in own.states.
void WindowAttention::AttendTail(int kv_head, int row, const float* q, Scratch& own) {
  const int group = shape_.group(), head_dim = shape_.head_dim;
  const std::span<const int32_t> slots = rows_[Z(row)].tail;
  const KvLayout& layout = tail_->layout;
  for (int chunk = 0; chunk * kKvChunk < n_tail_; ++chunk) {
    kernels_->scores({.keys = tail_->keys(chunk, kv_head),
                      .q = q + (Z(kv_head) * rows_.size() + Z(row)) * Z(group) * Z(head_dim),
                      .out = own.tail_scores.data() + Z(chunk) * Z(group) * kKvChunk,
                      .out_stride = kKvChunk,
                      .scale = shape_.scale,
                      .n_rows = group,
                      .head_dim = head_dim,
                      .block_begin = 0,
                      .block_end = Blocks(std::min(kKvChunk, n_tail_ - chunk * kKvChunk)),
                      .type = KernelType(layout.k_type)});
  }
  const std::byte* values[kKvChunk];
  for (size_t k = 0; k < slots.size(); ++k) values[k] = tail_->value_row(slots[k], kv_head);
  for (int g = 0; g < group; ++g) {
    float* scores = own.scores.data() + Z(g) * kKvChunk;
    for (size_t k = 0; k < slots.size(); ++k) {
      const int slot = slots[k];
      scores[k] = own.tail_scores[(Z(slot / kKvChunk) * Z(group) + Z(g)) * kKvChunk + Z(slot % kKvChunk)];
    }
    float* state = own.states.data() + Z(g) * state_floats();
    std::fill_n(state, state_floats(), 0.0F);
    kernels_->softmax_chunk(scores, static_cast<int>(slots.size()), state);
  }
  kernels_->gathered_values({.values = values,
                             .p = own.scores.data(),
                             .p_stride = kKvChunk,
                             .o = own.states.data() + kernels::kStateHeader,
                             .o_stride = static_cast<int64_t>(state_floats()),
                             .n_keys = static_cast<int>(slots.size()),
                             .n_rows = group,
                             .head_dim = head_dim,
                             .type = KernelType(layout.v_type)});
}

void WindowAttention::FinishRow(int kv_head, int row, const float* q, Scratch& own, float* out) {
  const bool has_tail = !rows_[Z(row)].tail.empty();
  if (has_tail) AttendTail(kv_head, row, q, own);
  for (int g = 0; g < shape_.group(); ++g) {
    float* state = nullptr;  // of what has been seen so far
    const auto merge = [&](float* part) {
      if (IsEmpty(part)) return;
      if (state == nullptr) {
        state = part;
      } else {
        kernels_->merge_state(state, part, shape_.head_dim);
      }
    };
    for (int split = 0; split < kSplits; ++split)
      merge(SplitState(kv_head, split, row) + Z(g) * state_floats());
    if (has_tail) merge(own.states.data() + Z(g) * state_floats());
    float* to = out + (Z(row) * Z(shape_.n_head) + Z(kv_head * shape_.group() + g)) * Z(shape_.head_dim);
    if (state == nullptr) {
      std::fill_n(to, shape_.head_dim, 0.0F);
    } else {
      kernels_->finish_state(state, shape_.head_dim, to);
    }
  }
}

void WindowAttention::Run(ThreadTeam::Worker& worker, const float* q, float* out) {
  const auto n_rows = static_cast<int>(rows_.size());
  const int n_tiles = (n_rows + kTileRows - 1) / kTileRows;
  Scratch& own = scratch_[Z(worker.index())];
  for (int item = worker.Claim(); item < shape_.n_kv_head * n_tiles * kSplits; item = worker.Claim()) {
    const int row_begin = item / kSplits % n_tiles * kTileRows;
    const Tile tile{.kv_head = item / kSplits / n_tiles,
                    .row_begin = row_begin,
                    .row_end = std::min(n_rows, row_begin + kTileRows)};
    AttendSplit(tile, item % kSplits, q, own);
  }
  worker.Barrier();
  const auto share = worker.ShareOf(shape_.n_kv_head * n_rows);
  for (int item = share.begin; item < share.end; ++item) FinishRow(item / n_rows, item % n_rows, q, own, out);
}

}  // namespace longspec
