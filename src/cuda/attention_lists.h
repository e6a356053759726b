// SPDX-License-Identifier: Apache-2.0
//
// Which rows see which chunks, as lists for the kernels of attention: of one sequence whose chunks lie one
// after the other.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/gpu/fused_attention.h"

namespace longspec::cuda {

struct AttentionLists {
  std::vector<kernels::gpu::AttentionRow> rows;
  std::vector<kernels::gpu::AttentionItem> items;
  std::vector<int> parts, part_begins;  // as MergeStates has them
  int n_states = 0;
  double seen = 0;  // keys, of all rows
};

// Row r sees positions [0, ends[r]), in ascending order. Items of one chunk follow each other, so that its
// bytes are read again while a cache has them.
inline AttentionLists ListsOf(const std::vector<int>& ends, int item_rows, const std::byte* chunks,
                              size_t chunk_bytes) {
  AttentionLists lists;
  for (const int end : ends) {
    lists.rows.push_back({.begin = 0, .end = end, .total = end, .tail = 0});
    lists.seen += end;
  }
  const auto n_rows = static_cast<int>(ends.size());
  std::vector<std::vector<int>> of_row(ends.size());
  for (int chunk = 0; chunk * kernels::kChunk < ends.back(); ++chunk) {
    const int begin = chunk * kernels::kChunk;
    for (int first = 0; first < n_rows; first += item_rows) {
      const int n = std::min(item_rows, n_rows - first), end = ends[static_cast<size_t>(first + n - 1)];
      if (end <= begin) continue;
      lists.items.push_back({.chunk = chunks + static_cast<size_t>(chunk) * chunk_bytes,
                             .tails = nullptr,
                             .first = begin,
                             .n_stored = std::min(kernels::kChunk, end - begin),
                             .row_begin = first,
                             .n_rows = n,
                             .state = lists.n_states});
      for (int row = first; row < first + n; ++row) {
        if (ends[static_cast<size_t>(row)] > begin) {
          of_row[static_cast<size_t>(row)].push_back(lists.n_states + row - first);
        }
      }
      lists.n_states += n;
    }
  }
  for (const std::vector<int>& of : of_row) {
    lists.part_begins.push_back(static_cast<int>(lists.parts.size()));
    lists.parts.insert(lists.parts.end(), of.begin(), of.end());
  }
  lists.part_begins.push_back(static_cast<int>(lists.parts.size()));
  return lists;
}

}  // namespace longspec::cuda
