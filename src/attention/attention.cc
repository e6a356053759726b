// SPDX-License-Identifier: Apache-2.0
#include "attention/attention.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace longspec {
namespace {

// Up to this many rows the work is cut by chunk, so that one row still keeps every thread busy; their partial
// states are merged after a barrier. With more rows it is cut by tiles of rows, which merge as they go and
// need no memory per chunk.
constexpr int kRowsByChunk = 24;
constexpr int kTileRows = 16;

static_assert(kKvChunk == kernels::kChunk && kKeyBlock == kernels::kKeyGroup);

size_t Z(int64_t n) { return static_cast<size_t>(n); }

// Makes room for `floats` numbers, whatever was there; more than asked for, since contexts grow.
void Reserve(AlignedBuffer& buffer, size_t floats) {
  const size_t bytes = floats * sizeof(float);
  if (buffer.size() < bytes) buffer = AlignedBuffer(bytes + bytes / 2);
}

int Blocks(int keys) { return (keys + kKeyBlock - 1) / kKeyBlock; }

}  // namespace

// Rows [row_begin, row_end) of one KV head, with one worker's scratch.
struct AttentionPlan::Tile {
  const KvSpan* span;
  const float* q;  // (n_rows, group, head_dim) of this KV head
  int kv_head;
  int row_begin, row_end;
  float* scores;                // (rows * group, 256)
  float* tree_scores;           // (stored chunks with speculated rows, rows * group, 256)
  int* counts;                  // (rows * group)
  kernels::Upcoming next = {};  // the keys this worker reads after this tile

  int n_rows() const { return row_end - row_begin; }
};

int AttentionPlan::RowsPerTile() const { return by_chunk_ ? n_rows_ : std::min(n_rows_, kTileRows); }

// How many keys of this chunk the row sees.
int AttentionPlan::CountAt(int row, int chunk) const {
  if (chunk < n_stored_chunks_) {
    return is_chain_ ? std::clamp(base_ + row + 1 - chunk * kKvChunk, 0, kKvChunk) : kKvChunk;
  }
  const int visible = base_ + path_begin_[Z(row) + 1] - path_begin_[Z(row)];
  return std::clamp(visible - chunk * kKvChunk, 0, kKvChunk);
}

void AttentionPlan::Plan(int base, int n_rows, std::span<const int32_t> parents) {
  base_ = base;
  n_rows_ = n_rows;
  is_chain_ = parents.empty();
  path_.clear();
  path_begin_.clear();
  if (is_chain_) {
    n_stored_chunks_ = n_chunks_ = (base + n_rows + kKvChunk - 1) / kKvChunk;
  } else {
    int longest = 0;
    std::vector<int32_t> path;
    for (int row = 0; row < n_rows; ++row) {
      path.clear();
      for (int32_t at = row; at >= 0; at = parents[Z(at)]) path.push_back(at);
      path_begin_.push_back(static_cast<int32_t>(path_.size()));
      path_.insert(path_.end(), path.rbegin(), path.rend());
      longest = std::max(longest, static_cast<int>(path.size()));
    }
    path_begin_.push_back(static_cast<int32_t>(path_.size()));
    n_stored_chunks_ = base / kKvChunk;
    n_chunks_ = (base + longest + kKvChunk - 1) / kKvChunk;
  }
  by_chunk_ = n_rows <= kRowsByChunk;

  const size_t tile_heads = Z(RowsPerTile()) * Z(shape_.group());
  const int speculated_chunks = (base % kKvChunk + n_rows + kKvChunk - 1) / kKvChunk;
  scores_floats_ = tile_heads * kKvChunk;
  tree_scores_floats_ = is_chain_ ? 0 : Z(speculated_chunks) * tile_heads * kKvChunk;
  tile_states_floats_ = by_chunk_ ? 0 : 2 * tile_heads * state_floats();
  const size_t floats = scores_floats_ + tree_scores_floats_ + tile_states_floats_;
  scratch_.resize(Z(n_threads_));
  for (Scratch& s : scratch_) {
    Reserve(s.floats, floats);
    if (s.counts.size() < tile_heads) s.counts.resize(tile_heads);
  }
  const size_t states = by_chunk_ ? Z(shape_.n_kv_head) * Z(n_chunks_) * tile_heads * state_floats() : 0;
  Reserve(states_, states);
}

// Chunk `chunk` read where it lies; row i sees its first CountAt(i, chunk) keys.
void AttentionPlan::AttendStored(const Tile& tile, int chunk, float* states) const {
  const int group = shape_.group(), n = tile.n_rows() * group;
  int most = 0;
  for (int i = 0; i < n; ++i) {
    tile.counts[i] = CountAt(tile.row_begin + i / group, chunk);
    most = std::max(most, tile.counts[i]);
  }
  if (most == 0) return;
  const KvLayout& layout = tile.span->layout;
  kernels::ScoresArgs scores{
      .keys = tile.span->keys(chunk, tile.kv_head),
      .q = tile.q + Z(tile.row_begin) * Z(group) * Z(shape_.head_dim),
      .out = tile.scores,
      .out_stride = kKvChunk,
      .scale = shape_.scale,
      .n_rows = n,
      .head_dim = shape_.head_dim,
      .block_begin = 0,
      .block_end = Blocks(most),
      .type = KernelType(layout.k_type),
      .next = {tile.span->values(chunk, tile.kv_head), Z(most) * layout.v_row_bytes()}};
  kernels_->scores(scores);
  for (int i = 0; i < n; ++i) {
    float* state = states + Z(i) * state_floats();
    std::fill_n(state, state_floats(), 0.0F);
    if (tile.counts[i] > 0) kernels_->softmax_chunk(tile.scores + Z(i) * kKvChunk, tile.counts[i], state);
  }
  kernels_->values({.values = tile.span->values(chunk, tile.kv_head),
                    .p = tile.scores,
                    .p_stride = kKvChunk,
                    .o = states + kernels::kStateHeader,
                    .o_stride = static_cast<int64_t>(state_floats()),
                    .n_keys = tile.counts,
                    .n_rows = n,
                    .head_dim = shape_.head_dim,
                    .type = KernelType(layout.v_type),
                    .next = tile.next});
}

// A tree's chunk `chunk` >= n_stored_chunks: what is left of the committed keys (only in the first such
// chunk), then each row's own ancestors, wherever their slots are.
void AttentionPlan::AttendTail(const Tile& tile, int chunk, float* states) const {
  const int group = shape_.group(), n = tile.n_rows() * group, head_dim = shape_.head_dim;
  const int first = chunk * kKvChunk;           // absolute position of this chunk's first key
  const int tail = std::max(0, base_ - first);  // committed keys in it
  const int spec_chunk = base_ / kKvChunk;      // chunk of the first speculated slot
  const KvLayout& layout = tile.span->layout;
  // Of them, those whose values are summed together with no speculated key's.
  const int whole = tail - tail % kernels::KeysSummedTogether(KernelType(layout.v_type));
  kernels::ScoresArgs scores{.keys = nullptr,
                             .q = tile.q + Z(tile.row_begin) * Z(group) * Z(head_dim),
                             .out = nullptr,
                             .out_stride = kKvChunk,
                             .scale = shape_.scale,
                             .n_rows = n,
                             .head_dim = head_dim,
                             .block_begin = 0,
                             .block_end = Blocks(tail),
                             .type = KernelType(layout.k_type)};
  if (tail > 0) {
    scores.keys = tile.span->keys(chunk, tile.kv_head);
    scores.out = tile.scores;
    kernels_->scores(scores);
  }
  for (int c = spec_chunk; c * kKvChunk < base_ + n_rows_; ++c) {
    scores.keys = tile.span->keys(c, tile.kv_head);
    scores.out = tile.tree_scores + Z(c - spec_chunk) * Z(n) * kKvChunk;
    scores.block_begin = std::max(0, base_ - c * kKvChunk) / kKeyBlock;
    scores.block_end = Blocks(std::min(kKvChunk, base_ + n_rows_ - c * kKvChunk));
    kernels_->scores(scores);
  }

  for (int i = 0; i < n; ++i) {
    const int row = tile.row_begin + i / group;
    const int32_t* path = path_.data() + path_begin_[Z(row)];
    const int visible = CountAt(row, chunk);
    tile.counts[i] = std::min(whole, visible);
    float* state = states + Z(i) * state_floats();
    std::fill_n(state, state_floats(), 0.0F);
    if (visible == 0) continue;
    float* s = tile.scores + Z(i) * kKvChunk;
    for (int k = tail; k < visible; ++k) {
      const int slot = base_ + path[first + k - base_];
      s[k] =
          tile.tree_scores[(Z(slot / kKvChunk - spec_chunk) * Z(n) + Z(i)) * kKvChunk + Z(slot % kKvChunk)];
    }
    kernels_->softmax_chunk(s, visible, state);
  }
  if (whole > 0) {
    kernels_->values({.values = tile.span->values(chunk, tile.kv_head),
                      .p = tile.scores,
                      .p_stride = kKvChunk,
                      .o = states + kernels::kStateHeader,
                      .o_stride = static_cast<int64_t>(state_floats()),
                      .n_keys = tile.counts,
                      .n_rows = n,
                      .head_dim = head_dim,
                      .type = KernelType(layout.v_type),
                      .next = tile.next});
  }
  const std::byte* values[kKvChunk];
  for (int r = 0; r < tile.n_rows(); ++r) {
    const int row = tile.row_begin + r;
    const int32_t* path = path_.data() + path_begin_[Z(row)];
    const int visible = CountAt(row, chunk);
    for (int k = whole; k < visible; ++k) {
      const int slot = k < tail ? first + k : base_ + path[first + k - base_];
      values[k - whole] = tile.span->value_row(slot, tile.kv_head);
    }
    kernels_->gathered_values({.values = values,
                               .p = tile.scores + Z(r) * Z(group) * kKvChunk + whole,
                               .p_stride = kKvChunk,
                               .o = states + Z(r) * Z(group) * state_floats() + kernels::kStateHeader,
                               .o_stride = static_cast<int64_t>(state_floats()),
                               .n_keys = std::max(0, visible - whole),
                               .n_rows = group,
                               .head_dim = head_dim,
                               .type = KernelType(layout.v_type)});
  }
}

void AttentionPlan::AttendChunk(const Tile& tile, int chunk, float* states) const {
  if (chunk < n_stored_chunks_) {
    AttendStored(tile, chunk, states);
  } else {
    AttendTail(tile, chunk, states);
  }
}

// As far as they were stored.
kernels::Upcoming AttentionPlan::KeysOf(const KvSpan& span, int kv_head, int chunk) const {
  const int stored = std::clamp(base_ + n_rows_ - chunk * kKvChunk, 0, kKvChunk);
  return {span.keys(chunk, kv_head),
          Z(Blocks(stored)) * (span.layout.k_head_bytes() / (kKvChunk / kKeyBlock))};
}

void AttentionPlan::RunByChunk(ThreadTeam::Worker& worker, const KvSpan& span, const float* q, float* out) {
  const int group = shape_.group();
  const size_t row_floats = Z(group) * Z(shape_.head_dim);
  const size_t chunk_states = Z(n_rows_) * Z(group) * state_floats();
  Scratch& own = scratch_[Z(worker.index())];
  float* scratch = own.floats.as<float>();
  const int n_items = shape_.n_kv_head * n_chunks_;
  // One item is claimed ahead, so that its keys can be asked of memory in time.
  for (int item = worker.Claim(), next = 0; item < n_items; item = next) {
    next = worker.Claim();
    const int kv_head = item / n_chunks_, chunk = item % n_chunks_;
    const Tile tile{
        .span = &span,
        .q = q + Z(kv_head) * Z(n_rows_) * row_floats,
        .kv_head = kv_head,
        .row_begin = 0,
        .row_end = n_rows_,
        .scores = scratch,
        .tree_scores = scratch + scores_floats_,
        .counts = own.counts.data(),
        .next = next < n_items ? KeysOf(span, next / n_chunks_, next % n_chunks_) : kernels::Upcoming{}};
    AttendChunk(tile, chunk, states_.as<float>() + Z(item) * chunk_states);
  }
  worker.Barrier();
  const auto share = worker.ShareOf(shape_.n_kv_head * n_rows_);
  for (int item = share.begin; item < share.end; ++item) {
    const int kv_head = item / n_rows_, row = item % n_rows_;
    for (int g = 0; g < group; ++g) {
      const auto state_of = [&](int chunk) {
        return states_.as<float>() + Z(kv_head * n_chunks_ + chunk) * chunk_states +
               Z(row * group + g) * state_floats();
      };
      float* state = state_of(0);  // chunk 0 always has the first position
      for (int chunk = 1; chunk < n_chunks_; ++chunk) {
        if (CountAt(row, chunk) > 0) kernels_->merge_state(state, state_of(chunk), shape_.head_dim);
      }
      kernels_->finish_state(state, shape_.head_dim,
                             out + (Z(row) * Z(shape_.n_head) + Z(kv_head * group + g)) * Z(shape_.head_dim));
    }
  }
}

void AttentionPlan::RunByTile(ThreadTeam::Worker& worker, const KvSpan& span, const float* q, float* out) {
  const int group = shape_.group();
  const size_t row_floats = Z(group) * Z(shape_.head_dim);
  const int n_tiles = (n_rows_ + kTileRows - 1) / kTileRows;
  Scratch& own = scratch_[Z(worker.index())];
  float* scratch = own.floats.as<float>();
  float* states = scratch + scores_floats_ + tree_scores_floats_;
  float* chunk_states = states + tile_states_floats_ / 2;
  for (int item = worker.Claim(); item < shape_.n_kv_head * n_tiles; item = worker.Claim()) {
    // The last rows of a long chain see the most keys: they go first, so that no thread is left with them at
    // the end.
    const int kv_head = item % shape_.n_kv_head,
              row_begin = (n_tiles - 1 - item / shape_.n_kv_head) * kTileRows;
    Tile tile{.span = &span,
              .q = q + Z(kv_head) * Z(n_rows_) * row_floats,
              .kv_head = kv_head,
              .row_begin = row_begin,
              .row_end = std::min(n_rows_, row_begin + kTileRows),
              .scores = scratch,
              .tree_scores = scratch + scores_floats_,
              .counts = own.counts.data()};
    const int n = tile.n_rows() * group;
    for (int chunk = 0; chunk < n_chunks_; ++chunk) {
      tile.next = chunk + 1 < n_chunks_ ? KeysOf(span, kv_head, chunk + 1) : kernels::Upcoming{};
      AttendChunk(tile, chunk, chunk == 0 ? states : chunk_states);
      if (chunk == 0) continue;
      for (int i = 0; i < n; ++i) {
        if (CountAt(row_begin + i / group, chunk) == 0) continue;
        kernels_->merge_state(states + Z(i) * state_floats(), chunk_states + Z(i) * state_floats(),
                              shape_.head_dim);
      }
    }
    for (int i = 0; i < n; ++i) {
      const int row = row_begin + i / group, head = kv_head * group + i % group;
      kernels_->finish_state(states + Z(i) * state_floats(), shape_.head_dim,
                             out + (Z(row) * Z(shape_.n_head) + Z(head)) * Z(shape_.head_dim));
    }
  }
}

void AttentionPlan::Run(ThreadTeam::Worker& worker, const KvSpan& span, const float* q, float* out) {
  LS_CHECK(span.n_committed == base_);
  if (by_chunk_) {
    RunByChunk(worker, span, q, out);
  } else {
    RunByTile(worker, span, q, out);
  }
}

}  // namespace longspec
