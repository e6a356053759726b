// SPDX-License-Identifier: Apache-2.0
#include "attention/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/state_merging.h"
#include "base/check.h"
#include "base/size.h"

namespace longspec {
namespace {

// A segment of up to this many rows is cut by chunk, so that one row still keeps every thread busy. With more
// rows it is cut by tiles of rows, which merge as they go and need no memory per chunk.
constexpr int kRowsByChunk = 32;
constexpr int kTileRows = 16;
constexpr float kUnseen = -std::numeric_limits<float>::infinity();  // a score whose weight is zero

static_assert(kKvChunk == kernels::kChunk && kKeyBlock == kernels::kKeyGroup);

// Makes room for `floats` numbers, whatever was there; more than asked for, since contexts grow.
void Reserve(AlignedBuffer& buffer, size_t floats, size_t most = std::numeric_limits<size_t>::max()) {
  const size_t bytes = floats * sizeof(float);
  if (buffer.size() < bytes) buffer = AlignedBuffer(std::max(bytes, std::min(bytes + bytes / 2, most)));
}

int Blocks(int keys) { return (keys + kKeyBlock - 1) / kKeyBlock; }

}  // namespace

// Rows [row_begin, row_end) of one KV head, with one worker's scratch.
struct AttentionPlan::Tile {
  const Group* group;  // of its first row
  KvSpan stored, tail;
  const float* q;  // (n_rows, group, head_dim) of this KV head, from row_begin on
  int kv_head;
  int row_begin, row_end;
  float* scores;                // (rows * group, 256)
  float* tail_scores;           // (chunks of tail slots, rows * group, 256)
  Scratch* own;                 // lows, counts (rows * group), values
  kernels::Upcoming next = {};  // the keys this worker reads after this tile

  int n_rows() const { return row_end - row_begin; }
};

KvSpan AttentionPlan::StoredOf(const Group& group, int layer) const {
  KvSpan span = group.segment->stored;
  span.layer_offset += Z(layer) * group.layer_bytes;
  return span;
}

// ---- Planning
// -----------------------------------------------------------------------------------------------------

AttentionWork::Cut AttentionPlan::CutOf(const AttentionShape& shape, size_t state_bytes) {
  const size_t row_floats = Z(shape.group()) * (kernels::kStateHeader + Z(shape.head_dim));
  return {.rows_by_chunk = kRowsByChunk,
          .tile_rows = kTileRows,
          .work_rows = kRowsByChunk,
          .wave_states = state_bytes / sizeof(float) / (Z(shape.n_kv_head) * row_floats)};
}

void AttentionPlan::Plan(std::span<const AttentionSegment> segments) {
  AttentionWork::Plan(segments);
  ReserveMemory();
}

void AttentionPlan::ReserveMemory() {
  most_tail_chunks_ = 0;
  int most_tail_rows = 0;
  size_t most_values = 0;
  for (const Group& group : groups_) {
    if (group.n_stored == group.n_chunks) continue;
    const AttentionSegment& segment = *group.segment;
    const int chunks = ChunksOf(segment.tail_end) - segment.tail_begin / kKvChunk;
    most_tail_chunks_ = std::max(most_tail_chunks_, chunks);
    const int rows = group.row_end - group.row_begin;
    most_tail_rows = std::max(most_tail_rows, group.by_chunk ? rows : std::min(rows, kTileRows));
    most_values = kKvChunk;
  }
  const size_t heads = Z(most_work_rows_) * Z(shape_.group());
  scores_floats_ = heads * kKvChunk;
  tail_floats_ = Z(most_tail_chunks_) * Z(most_tail_rows) * Z(shape_.group()) * kKvChunk;
  const size_t tile_states = n_tiles_ > 0 ? 3 * Z(kTileRows) * row_states() : 0;
  for (Scratch& s : scratch_) {
    Reserve(s.floats, scores_floats_ + tail_floats_ + tile_states);
    if (s.lows.size() < heads) s.lows.resize(heads);
    if (s.counts.size() < heads) s.counts.resize(heads);
    if (s.values.size() < most_values) s.values.resize(most_values);
  }
  const size_t fixed = fixed_state_bytes_ / sizeof(float);
  Reserve(states_, std::max(fixed, Z(shape_.n_kv_head) * n_states_ * row_states()),
          fixed > 0 ? fixed_state_bytes_ : kStateBytes);
  if (waves_.size() > 1 || fixed > 0)
    Reserve(running_, 2 * Z(shape_.n_kv_head) * rows_.size() * row_states());
}

size_t AttentionPlan::bytes() const {
  size_t n = states_.size() + running_.size();
  for (const Scratch& s : scratch_) {
    n += s.floats.size() + (s.lows.capacity() + s.counts.capacity()) * sizeof(int) +
         s.values.capacity() * sizeof(const std::byte*);
  }
  return n;
}

size_t AttentionPlan::MostBytes(const AttentionShape& shape, int n_threads, int n_rows) {
  const size_t group = Z(shape.group()), state = group * (kernels::kStateHeader + Z(shape.head_dim));
  const size_t heads = kRowsByChunk * group;
  const size_t tail_chunks = Z(n_rows / kKvChunk + 2);
  const size_t scratch =
      (heads * kKvChunk * (1 + tail_chunks) + 3 * kTileRows * state) * sizeof(float) * 3 / 2;
  const size_t own = scratch + 2 * heads * sizeof(int) + kKvChunk * sizeof(void*);
  const size_t running = 2 * Z(shape.n_kv_head) * Z(n_rows) * state * sizeof(float) * 3 / 2;
  return Z(n_threads) * own + kStateBytes + kRowsByChunk * Z(shape.n_kv_head) * state * sizeof(float) +
         running;
}

// ---- Running
// ------------------------------------------------------------------------------------------------------

// Which keys of the chunk each row and head sees: offsets [low, count); both 0 if none.
void AttentionPlan::CountKeys(const Tile& tile, int chunk) const {
  const int group = shape_.group(), first = chunk * kKvChunk;
  for (int i = 0; i < tile.n_rows(); ++i) {
    const Row& row = rows_[Z(tile.row_begin + i)];
    const int end = IsStored(groups_[Z(row.group)], chunk) ? row.end : row.total;
    const int count = std::clamp(end - first, 0, kKvChunk), low = std::clamp(row.begin - first, 0, kKvChunk);
    for (int g = 0; g < group; ++g) {
      tile.own->lows[Z(i * group + g)] = low < count ? low : 0;
      tile.own->counts[Z(i * group + g)] = low < count ? count : 0;
    }
  }
}

// Chunk `chunk` read where it lies.
void AttentionPlan::AttendStored(const Tile& tile, int chunk, float* states) const {
  const int n = tile.n_rows() * shape_.group();
  const int* lows = tile.own->lows.data();
  const int* counts = tile.own->counts.data();
  int least = kKvChunk, most = 0;
  for (int i = 0; i < n; ++i) {
    most = std::max(most, counts[i]);
    if (counts[i] > 0) least = std::min(least, lows[i]);
  }
  if (most == 0) return;
  const AttentionSegment& segment = *tile.group->segment;
  const int at = segment.PlaceOf(chunk);
  const KvLayout& layout = tile.stored.layout;
  kernels_->scores({.keys = tile.stored.keys(at, tile.kv_head),
                    .q = tile.q,
                    .out = tile.scores,
                    .out_stride = kKvChunk,
                    .scale = shape_.scale,
                    .n_rows = n,
                    .head_dim = shape_.head_dim,
                    .block_begin = least / kKeyBlock,
                    .block_end = Blocks(most),
                    .type = KernelType(layout.k_type),
                    .next = {tile.stored.values(at, tile.kv_head), Z(most) * layout.v_row_bytes()}});
  for (int i = 0; i < n; ++i) {
    float* state = states + Z(i) * state_floats();
    std::fill_n(state, state_floats(), 0.0F);
    if (counts[i] == 0) continue;
    float* scores = tile.scores + Z(i) * kKvChunk;
    std::fill_n(scores, lows[i], kUnseen);
    kernels_->softmax_chunk(scores, counts[i], state);
  }
  kernels_->values({.values = tile.stored.values(at, tile.kv_head),
                    .p = tile.scores,
                    .p_stride = kKvChunk,
                    .o = states + kernels::kStateHeader,
                    .o_stride = static_cast<int64_t>(state_floats()),
                    .n_keys = counts,
                    .n_rows = n,
                    .head_dim = shape_.head_dim,
                    .type = KernelType(layout.v_type),
                    .next = tile.next});
}

// A chunk in which tails begin or go on: what is left of the stored keys (only in the first such chunk), then
// each row's own tail, wherever its slots are.
void AttentionPlan::AttendTail(const Tile& tile, int chunk, float* states) const {
  const int group = shape_.group(), n = tile.n_rows() * group, head_dim = shape_.head_dim;
  const AttentionSegment& segment = *tile.group->segment;
  const int* lows = tile.own->lows.data();
  int* counts = tile.own->counts.data();
  const int first = chunk * kKvChunk;  // position of this chunk's first key
  int end = 0;                         // where tails begin
  bool any_tail = false;
  for (int place = tile.row_begin; place < tile.row_end; ++place) {
    end = std::max(end, rows_[Z(place)].end);
    any_tail |= rows_[Z(place)].total > rows_[Z(place)].end;
  }
  const int stored = std::max(0, end - first);  // stored keys in it
  const int at = segment.PlaceOf(chunk);
  const KvLayout& layout = tile.tail.layout;
  // Of them, those whose values are summed together with no tail's.
  const int whole = stored - stored % kernels::KeysSummedTogether(KernelType(layout.v_type));
  kernels::ScoresArgs scores{.keys = nullptr,
                             .q = tile.q,
                             .out = nullptr,
                             .out_stride = kKvChunk,
                             .scale = shape_.scale,
                             .n_rows = n,
                             .head_dim = head_dim,
                             .block_begin = 0,
                             .block_end = Blocks(stored),
                             .type = KernelType(layout.k_type)};
  if (stored > 0) {
    scores.keys = tile.stored.keys(at, tile.kv_head);
    scores.out = tile.scores;
    kernels_->scores(scores);
  }
  const int tail_chunk = segment.tail_begin / kKvChunk;
  for (int c = tail_chunk; any_tail && c * kKvChunk < segment.tail_end; ++c) {
    scores.keys = tile.tail.keys(c, tile.kv_head);
    scores.out = tile.tail_scores + Z(c - tail_chunk) * Z(n) * kKvChunk;
    scores.block_begin = std::max(0, segment.tail_begin - c * kKvChunk) / kKeyBlock;
    scores.block_end = Blocks(std::min(kKvChunk, segment.tail_end - c * kKvChunk));
    kernels_->scores(scores);
  }

  for (int i = 0; i < n; ++i) {
    const Row& row = rows_[Z(tile.row_begin + i / group)];
    const int visible = counts[i];
    counts[i] = std::min(whole, visible);
    float* state = states + Z(i) * state_floats();
    std::fill_n(state, state_floats(), 0.0F);
    if (visible == 0) continue;
    float* s = tile.scores + Z(i) * kKvChunk;
    for (int k = stored; k < visible; ++k) {
      const int slot = row.tail[first + k - row.end];
      s[k] =
          tile.tail_scores[(Z(slot / kKvChunk - tail_chunk) * Z(n) + Z(i)) * kKvChunk + Z(slot % kKvChunk)];
    }
    std::fill_n(s, lows[i], kUnseen);
    kernels_->softmax_chunk(s, visible, state);
  }
  if (whole > 0) {
    kernels_->values({.values = tile.stored.values(at, tile.kv_head),
                      .p = tile.scores,
                      .p_stride = kKvChunk,
                      .o = states + kernels::kStateHeader,
                      .o_stride = static_cast<int64_t>(state_floats()),
                      .n_keys = counts,
                      .n_rows = n,
                      .head_dim = head_dim,
                      .type = KernelType(layout.v_type),
                      .next = tile.next});
  }
  const std::byte** values = tile.own->values.data();
  for (int r = 0; r < tile.n_rows(); ++r) {
    const Row& row = rows_[Z(tile.row_begin + r)];
    const int visible = std::clamp(row.total - first, 0, kKvChunk);
    if (visible <= std::max(whole, row.begin - first)) continue;
    for (int k = whole; k < visible; ++k) {
      values[k - whole] = k < stored ? tile.stored.values(at, tile.kv_head) + Z(k) * layout.v_row_bytes()
                                     : tile.tail.value_row(row.tail[first + k - row.end], tile.kv_head);
    }
    kernels_->gathered_values({.values = values,
                               .p = tile.scores + Z(r) * Z(group) * kKvChunk + whole,
                               .p_stride = kKvChunk,
                               .o = states + Z(r) * Z(group) * state_floats() + kernels::kStateHeader,
                               .o_stride = static_cast<int64_t>(state_floats()),
                               .n_keys = visible - whole,
                               .n_rows = group,
                               .head_dim = head_dim,
                               .type = KernelType(layout.v_type)});
  }
}

// States of the rows that see keys of the chunk; those of others are unspecified.
void AttentionPlan::AttendChunk(const Tile& tile, int chunk, float* states) const {
  CountKeys(tile, chunk);
  if (IsStored(*tile.group, chunk)) {
    AttendStored(tile, chunk, states);
  } else {
    AttendTail(tile, chunk, states);
  }
}

// All chunks of one tile, merged as they come. `states`: three of the tile's.
void AttentionPlan::AttendTile(const Tile& tile, float* states, float* out) const {
  const int group = shape_.group(), n = tile.n_rows() * group, head_dim = shape_.head_dim;
  const size_t tile_floats = Z(kTileRows) * row_states();
  float *open = states + tile_floats, *before = open + tile_floats;
  int first = tile.group->n_chunks, end = 0;
  for (int place = tile.row_begin; place < tile.row_end; ++place) {
    const Row& row = rows_[Z(place)];
    first = std::min(first, row.begin / kKvChunk);
    end = std::max(end, ChunksOf(row.total));
  }
  const auto merging = [&](int i, int next) {
    const int row_first = rows_[Z(tile.row_begin + i / group)].begin / kKvChunk;
    const size_t at = Z(i) * state_floats();
    return StateMerging(*kernels_, head_dim, row_first, std::max(next, row_first), open + at, before + at);
  };
  Tile at = tile;
  for (int chunk = first; chunk < end; ++chunk) {
    at.next = {};
    if (chunk + 1 < end && IsStored(*tile.group, chunk + 1)) {
      const AttentionSegment& segment = *tile.group->segment;
      const int next = segment.PlaceOf(chunk + 1);
      const int stored = std::clamp(rows_[Z(tile.row_end - 1)].end - (chunk + 1) * kKvChunk, 0, kKvChunk);
      at.next = {tile.stored.keys(next, tile.kv_head),
                 Z(Blocks(stored)) * (tile.stored.layout.k_head_bytes() / (kKvChunk / kKeyBlock))};
    }
    float* of_chunk = chunk == first ? open : states;
    AttendChunk(at, chunk, of_chunk);
    for (int i = 0; i < n; ++i) {
      const Row& row = rows_[Z(tile.row_begin + i / group)];
      const int last = std::min(IsStored(*tile.group, chunk) ? row.end : row.total, (chunk + 1) * kKvChunk);
      if (std::max(row.begin, chunk * kKvChunk) >= last) continue;
      StateMerging merged = merging(i, chunk);
      merged.Add(of_chunk + Z(i) * state_floats());
      merged.Keep();
    }
  }
  for (int i = 0; i < n; ++i) {
    const Row& row = rows_[Z(tile.row_begin + i / group)];
    float* to = out + (Z(row.out) * Z(shape_.n_head) + Z(tile.kv_head * group + i % group)) * Z(head_dim);
    merging(i, row.begin < row.total ? ChunksOf(row.total) : 0).Finish(to);
  }
}

// Of item `item` of a wave, as far as its rows see them; nothing past the last item.
kernels::Upcoming AttentionPlan::KeysOf(int item, int layer, const Wave& wave) const {
  const int n_works = wave.work_end - wave.work_begin;
  if (item >= shape_.n_kv_head * n_works) return {};
  const Work& work = works_[Z(wave.work_begin + item % n_works)];
  const Group& group = groups_[Z(work.group)];
  const KvSpan stored = StoredOf(group, layer);
  const int keys = std::clamp(rows_[Z(work.row_end - 1)].end - work.chunk * kKvChunk, 0, kKvChunk);
  if (keys == 0) return {};
  const int at = group.segment->PlaceOf(work.chunk);
  return {stored.keys(at, item / n_works),
          Z(Blocks(keys)) * (stored.layout.k_head_bytes() / (kKvChunk / kKeyBlock))};
}

// Merges the wave's parts of the row with those of waves before.
void AttentionPlan::MergeRow(int kv_head, int place, const Wave& wave, bool last, float* out) {
  const Row& row = rows_[Z(place)];
  const int part_begin = &wave == waves_.data() ? 0 : (&wave - 1)->part_end;
  const int first = row.begin / kKvChunk;
  int next = first, first_part = row.first_part;  // parts are those of all chunks from the first on
  for (; first_part >= 0 && first_part < part_begin; first_part = parts_[Z(first_part)].next) ++next;
  float* kept = nullptr;
  if (waves_.size() > 1)
    kept = running_.as<float>() + 2 * (Z(kv_head) * rows_.size() + Z(place)) * row_states();
  float* to = out + (Z(row.out) * Z(shape_.n_head) + Z(kv_head * shape_.group())) * Z(shape_.head_dim);
  for (int g = 0; g < shape_.group(); ++g, to += shape_.head_dim) {
    const size_t at = Z(g) * state_floats();
    float* open = kept == nullptr ? nullptr : kept + at;
    float* before = kept == nullptr ? nullptr : kept + row_states() + at;
    StateMerging merged(*kernels_, shape_.head_dim, first, next, open, before);
    for (int part = first_part; part >= 0 && part < wave.part_end; part = parts_[Z(part)].next)
      merged.Add(State(kv_head, parts_[Z(part)].state) + at);
    if (last) {
      merged.Finish(to);
    } else {
      merged.Keep();
    }
  }
}

void AttentionPlan::Run(ThreadTeam::Worker& worker, int layer, const float* q, float* out) {
  const size_t row_floats = Z(shape_.group()) * Z(shape_.head_dim);
  Scratch& own = scratch_[Z(worker.index())];
  const auto tile_of = [&](const Work& work, int kv_head) {
    const Group& group = groups_[Z(work.group)];
    float* scratch = own.floats.as<float>();
    Tile tile{.group = &group,
              .stored = StoredOf(group, layer),
              .tail = group.segment->tail,
              .q = q + (Z(kv_head) * rows_.size() + Z(work.row_begin)) * row_floats,
              .kv_head = kv_head,
              .row_begin = work.row_begin,
              .row_end = work.row_end,
              .scores = scratch,
              .tail_scores = scratch + scores_floats_,
              .own = &own};
    tile.tail.layer_offset += Z(layer) * group.layer_bytes;
    return tile;
  };
  // Tiles first, several KV heads of the same rows after each other.
  const int n_tile_items = n_tiles_ * shape_.n_kv_head;
  int item = worker.Claim();
  for (; item < n_tile_items; item = worker.Claim()) {
    float* states = own.floats.as<float>() + scores_floats_ + tail_floats_;
    AttendTile(tile_of(works_[Z(item / shape_.n_kv_head)], item % shape_.n_kv_head), states, out);
  }
  item -= n_tile_items;
  for (const Wave& wave : waves_) {
    const int n = n_rows() - first_by_chunk_, n_works = wave.work_end - wave.work_begin;
    if (n == 0) break;
    const bool first = &wave == waves_.data(), last = &wave == &waves_.back();
    const int skipped = first ? n_tile_items : 0;
    if (!first) item = worker.Claim();
    // One item is claimed ahead, so that its keys can be asked of memory in time.
    for (int next = 0; item < shape_.n_kv_head * n_works; item = next) {
      next = worker.Claim() - skipped;
      const Work& work = works_[Z(wave.work_begin + item % n_works)];
      Tile tile = tile_of(work, item / n_works);
      tile.next = KeysOf(next, layer, wave);
      AttendChunk(tile, work.chunk, State(tile.kv_head, work.state));
    }
    worker.Barrier();
    const auto share = worker.ShareOf(shape_.n_kv_head * n);
    for (int i = share.begin; i < share.end; ++i) MergeRow(i / n, first_by_chunk_ + i % n, wave, last, out);
    if (!last) worker.Barrier();
  }
}

}  // namespace longspec
