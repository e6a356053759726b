// SPDX-License-Identifier: Apache-2.0
//
// Some rows of a packed matrix as a packed matrix of its own: the LM head of a reduced vocabulary.
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/ops.h"

namespace longspec {

// Row i of the result, which lies in `memory`, has the bits of row rows[i]. REQUIRES: rows are in range.
kernels::PackedMatrix GatherPackedRows(const kernels::PackedMatrix& matrix, std::span<const int32_t> rows,
                                       AlignedBuffer* memory);

}  // namespace longspec
