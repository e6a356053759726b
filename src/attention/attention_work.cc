// SPDX-License-Identifier: Apache-2.0
#include "attention/attention_work.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/size.h"

namespace longspec {

const std::byte* AttentionWork::ChunkOf(const Group& group, int chunk) const {
  const AttentionSegment& segment = *group.segment;
  return segment.stored.chunks[segment.PlaceOf(chunk)] + segment.stored.layer_offset;
}

void AttentionWork::Plan(std::span<const AttentionSegment> segments) {
  segments_.assign(segments.begin(), segments.end());
  PlanGroups();
  PlanRows();
  PlanWorks();
}

void AttentionWork::PlanGroups() {
  groups_.clear();
  int row = 0;
  for (const AttentionSegment& segment : segments_) {
    const size_t first_group = groups_.size();
    const bool by_chunk = segment.rows.size() <= Z(cut_.rows_by_chunk);
    const size_t layer_bytes = segment.stored.layout.layer_bytes();
    int tail_end = -1, last_end = 0;  // of the running group: where tails begin, and the last stored position
    for (const RowView& view : segment.rows) {
      LS_CHECK(view.begin >= 0 && view.begin <= view.end + static_cast<int>(view.tail.size()));
      const bool has_tail = !view.tail.empty();
      const bool fits = groups_.size() > first_group &&
                        (has_tail ? (tail_end < 0 ? last_end <= view.end : tail_end == view.end)
                                  : (tail_end < 0 || view.end <= tail_end));
      if (!fits) {
        groups_.push_back({.segment = &segment,
                           .layer_bytes = layer_bytes,
                           .row_begin = row,
                           .row_end = row,
                           .first_chunk = std::numeric_limits<int>::max(),
                           .n_stored = 0,
                           .n_chunks = 0,
                           .by_chunk = by_chunk});
        tail_end = -1;
        last_end = 0;
      }
      Group& group = groups_.back();
      group.row_end = ++row;
      last_end = std::max(last_end, view.end);
      if (has_tail) tail_end = view.end;
      const int total = view.end + static_cast<int>(view.tail.size());
      group.first_chunk = std::min(group.first_chunk, view.begin / kKvChunk);
      group.n_chunks = std::max(group.n_chunks, ChunksOf(total));
      group.n_stored = tail_end >= 0 ? tail_end / kKvChunk : ChunksOf(last_end);
    }
  }
}

// Sequences that hold the same chunks become neighbours: then the rows that see a shared chunk lie together.
void AttentionWork::PlanRows() {
  if (segments_.size() > 1) {
    std::stable_sort(groups_.begin(), groups_.end(), [this](const Group& a, const Group& b) {
      if (a.by_chunk != b.by_chunk) return b.by_chunk;
      for (int chunk = 0; chunk < std::min(a.n_stored, b.n_stored); ++chunk) {
        const std::byte* of_a = ChunkOf(a, chunk);
        const std::byte* of_b = ChunkOf(b, chunk);
        if (of_a != of_b) return of_a < of_b;
      }
      return a.n_stored < b.n_stored;
    });
  }
  size_t n_rows = 0;
  for (const AttentionSegment& segment : segments_) n_rows += segment.rows.size();
  rows_.clear();
  place_.resize(n_rows);
  std::vector<int> first_row;  // of each segment, as they count
  for (const AttentionSegment& segment : segments_) {
    const int before =
        first_row.empty() ? 0 : first_row.back() + static_cast<int>((&segment - 1)->rows.size());
    first_row.push_back(before);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const int first = first_row[Z(group.segment - segments_.data())];
    const int out_begin = group.row_begin, out_end = group.row_end;
    group.row_begin = static_cast<int>(rows_.size());
    for (int out = out_begin; out < out_end; ++out) {
      const RowView& view = group.segment->rows[Z(out - first)];
      place_[Z(out)] = static_cast<int>(rows_.size());
      rows_.push_back({.begin = view.begin,
                       .end = view.end,
                       .tail = view.tail.data(),
                       .total = view.end + static_cast<int>(view.tail.size()),
                       .group = static_cast<int>(g),
                       .out = out,
                       .first_part = -1,
                       .last_part = -1});
    }
    group.row_end = static_cast<int>(rows_.size());
  }
}

bool AttentionWork::Sees(const Row& row, int chunk) const {
  const int first = chunk * kKvChunk;
  const int last = IsStored(groups_[Z(row.group)], chunk) ? row.end : row.total;
  return std::max(row.begin, first) < std::min(last, first + kKvChunk);
}

void AttentionWork::AddWork(int group, int chunk, int row_begin, int row_end) {
  int state = works_.size() == Z(waves_.back().work_begin) ? 0 : works_.back().state;
  if (works_.size() > Z(waves_.back().work_begin)) state += works_.back().row_end - works_.back().row_begin;
  if (state > 0 && Z(state + row_end - row_begin) > cut_.wave_states) {
    waves_.back().work_end = static_cast<int>(works_.size());
    waves_.back().part_end = static_cast<int>(parts_.size());
    waves_.push_back({.work_begin = static_cast<int>(works_.size()), .work_end = 0, .part_end = 0});
    state = 0;
  }
  works_.push_back(
      {.group = group, .chunk = chunk, .row_begin = row_begin, .row_end = row_end, .state = state});
  n_states_ = std::max(n_states_, Z(state + row_end - row_begin));
  for (int place = row_begin; place < row_end; ++place) {
    Row& row = rows_[Z(place)];
    if (!Sees(row, chunk)) continue;
    const auto part = static_cast<int>(parts_.size());
    parts_.push_back({.state = state + place - row_begin, .next = -1});
    (row.first_part < 0 ? row.first_part : parts_[Z(row.last_part)].next) = part;
    row.last_part = part;
  }
}

void AttentionWork::PlanWorks() {
  works_.clear();
  parts_.clear();
  waves_.clear();
  n_states_ = 0;
  most_work_rows_ = 0;
  // The last rows of a long chain see the most keys: they go first, so that no thread is left with them at
  // the end.
  int end_chunk = 0, first_chunk = std::numeric_limits<int>::max();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (group.by_chunk) {
      end_chunk = std::max(end_chunk, group.n_chunks);
      first_chunk = std::min(first_chunk, group.first_chunk);
      continue;
    }
    const int n_tiles = (group.row_end - group.row_begin + cut_.tile_rows - 1) / cut_.tile_rows;
    for (int tile = n_tiles - 1; tile >= 0; --tile) {
      const int begin = group.row_begin + tile * cut_.tile_rows;
      works_.push_back({.group = static_cast<int>(g),
                        .chunk = -1,
                        .row_begin = begin,
                        .row_end = std::min(group.row_end, begin + cut_.tile_rows),
                        .state = 0});
    }
    most_work_rows_ = cut_.tile_rows;
  }
  n_tiles_ = static_cast<int>(works_.size());
  first_by_chunk_ = 0;
  for (const Group& group : groups_) first_by_chunk_ += group.by_chunk ? 0 : group.row_end - group.row_begin;
  waves_.push_back({.work_begin = n_tiles_, .work_end = 0, .part_end = 0});
  for (int chunk = first_chunk; chunk < end_chunk; ++chunk) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      if (!group.by_chunk || chunk < group.first_chunk || chunk >= group.n_chunks) continue;
      int row_end = group.row_end;
      const size_t leader = g;
      if (IsStored(group, chunk)) {
        // Neighbours that hold the same chunk see it in the same item.
        for (; g + 1 < groups_.size(); ++g) {
          const Group& next = groups_[g + 1];
          if (!IsStored(next, chunk) || chunk < next.first_chunk ||
              ChunkOf(next, chunk) != ChunkOf(group, chunk) ||
              next.row_end - group.row_begin > cut_.work_rows) {
            break;
          }
          row_end = next.row_end;
        }
      }
      for (int begin = group.row_begin; begin < row_end; begin += cut_.work_rows) {
        const int end = std::min(row_end, begin + cut_.work_rows);
        const auto rows = std::span(rows_).subspan(Z(begin), Z(end - begin));
        const bool is_part = end - begin < row_end - group.row_begin;
        if (is_part && std::ranges::none_of(rows, [&](const Row& row) { return Sees(row, chunk); })) continue;
        AddWork(static_cast<int>(leader), chunk, begin, end);
        most_work_rows_ = std::max(most_work_rows_, end - begin);
      }
    }
  }
  waves_.back().work_end = static_cast<int>(works_.size());
  waves_.back().part_end = static_cast<int>(parts_.size());
}

}  // namespace longspec
