// SPDX-License-Identifier: Apache-2.0
#include "draft_model/packed_rows.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/packing.h"

namespace longspec {
namespace {

using kernels::kRowGroup;
using kernels::WeightFormat;

// A group is a few runs of cells, each cell with one piece of `bytes` for every row of the group.
struct Run {
  size_t n_cells = 0, bytes = 0;
};

void CopyRuns(std::span<const Run> runs, const std::byte* from, size_t from_lane, std::byte* to,
              size_t to_lane) {
  for (const Run& run : runs) {
    for (size_t i = 0; i < run.n_cells; ++i) {
      std::memcpy(to + to_lane * run.bytes, from + from_lane * run.bytes, run.bytes);
      from += kRowGroup * run.bytes;
      to += kRowGroup * run.bytes;
    }
  }
}

}  // namespace

kernels::PackedMatrix GatherPackedRows(const kernels::PackedMatrix& matrix, std::span<const int32_t> rows,
                                       AlignedBuffer* memory) {
  std::vector<Run> runs;
  const auto n_in = static_cast<size_t>(matrix.n_in);
  if (kernels::IsQuantized(matrix.format)) {
    const size_t n_block = n_in / kernels::kQuantBlock;
    const bool u4 = kernels::IsU4(matrix.format), super_blocks = kernels::HasSuperBlocks(matrix.format);
    const size_t n_numbers = super_blocks ? n_in / kernels::kSuperBlock : n_block;
    runs.push_back({n_block * (u4 ? 4 : 8), 4});                                   // quants
    runs.push_back({n_numbers * (kernels::HasMinima(matrix.format) ? 2 : 1), 2});  // scales and minima
    if (super_blocks) runs.push_back({n_block * 2, 1});                            // factors
  } else {
    runs.push_back({n_in, matrix.format == WeightFormat::kF32 ? size_t{4} : size_t{2}});  // values
  }
  const size_t n_groups = (rows.size() + kRowGroup - 1) / kRowGroup;
  *memory = AlignedBuffer(n_groups * matrix.group_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    LS_CHECK(rows[i] >= 0 && rows[i] < matrix.n_out);
    const auto row = static_cast<size_t>(rows[i]);
    CopyRuns(runs, matrix.data + row / kRowGroup * matrix.group_bytes, row % kRowGroup,
             memory->data() + i / kRowGroup * matrix.group_bytes, i % kRowGroup);
  }
  kernels::PackedMatrix result = matrix;
  result.data = memory->data();
  result.n_out = static_cast<int64_t>(rows.size());
  return result;
}

}  // namespace longspec
