// SPDX-License-Identifier: Apache-2.0
//
// Rows of sequences whose keys lie in their own caches, as views: the committed positions and its ancestors,
// in depth order. Rows that go on where the committed positions end, each after the one before it, lie where
// their positions are: only what branches off needs a tail.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention.h"

namespace longspec {

class TreeRows {
 public:
  void Clear();

  // n_rows rows of one sequence in the slots after `base` committed ones. `parents` (n_rows): each row's
  // parent row, which is an earlier one, -1 for a row right after the committed ones; empty: a chain.
  void Add(const KvSpan& span, int base, int n_rows, std::span<const int32_t> parents);

  // All that was added, valid until the next Clear or Add.
  std::span<const AttentionSegment> Segments();

 private:
  struct Tail {
    size_t row, begin, end;  // of slots_
  };
  struct Segment {
    KvSpan span;
    size_t row_begin, row_end;
    int tail_begin, tail_end;
  };
  std::vector<RowView> rows_;
  std::vector<Tail> tails_;
  std::vector<int32_t> slots_;
  std::vector<Segment> added_;
  std::vector<AttentionSegment> segments_;
};

}  // namespace longspec
