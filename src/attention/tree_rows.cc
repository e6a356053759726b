// SPDX-License-Identifier: Apache-2.0
#include "attention/tree_rows.h"

#include <algorithm>

#include "base/check.h"
#include "base/size.h"

namespace longspec {
namespace {

// How many rows, from the first on, follow each other and are ancestors of all rows after them. None of a
// forest.
int SharedRows(int n_rows, std::span<const int32_t> parents) {
  if (parents.empty()) return n_rows;
  int n = 1;
  while (n < n_rows && parents[Z(n)] == n - 1) ++n;
  for (int row = n; row < n_rows; ++row) n = std::min(n, parents[Z(row)] + 1);
  return n;
}

}  // namespace

void TreeRows::Clear() {
  rows_.clear();
  tails_.clear();
  slots_.clear();
  added_.clear();
}

void TreeRows::Add(const KvSpan& span, int base, int n_rows, std::span<const int32_t> parents) {
  LS_CHECK(n_rows > 0 && (parents.empty() || parents.size() == Z(n_rows)));
  const int n_shared = SharedRows(n_rows, parents);
  const size_t first = rows_.size();
  for (int row = 0; row < n_shared; ++row) rows_.push_back({.begin = 0, .end = base + row + 1});
  for (int row = n_shared; row < n_rows; ++row) {
    const size_t begin = slots_.size();
    for (int at = row; at >= n_shared; at = parents[Z(at)]) slots_.push_back(base + at);
    std::reverse(slots_.begin() + static_cast<std::ptrdiff_t>(begin), slots_.end());
    tails_.push_back({.row = rows_.size(), .begin = begin, .end = slots_.size()});
    rows_.push_back({.begin = 0, .end = base + n_shared});
  }
  added_.push_back({.span = span,
                    .row_begin = first,
                    .row_end = rows_.size(),
                    .tail_begin = base,
                    .tail_end = base + n_rows});
}

std::span<const AttentionSegment> TreeRows::Segments() {
  for (const Tail& tail : tails_) {
    rows_[tail.row].tail = std::span(slots_).subspan(tail.begin, tail.end - tail.begin);
  }
  segments_.clear();
  for (const Segment& segment : added_) {
    segments_.push_back({.stored = segment.span,
                         .tail = segment.span,
                         .tail_begin = segment.tail_begin,
                         .tail_end = segment.tail_end,
                         .rows = std::span<const RowView>(rows_).subspan(
                             segment.row_begin, segment.row_end - segment.row_begin)});
  }
  return segments_;
}

}  // namespace longspec
