// SPDX-License-Identifier: Apache-2.0
//
// What the passes of one draft model work in: one for all sequences that draft with it, as one pass runs at a
// time. Nothing in it outlives a pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/size.h"
#include "model/block.h"
#include "model/shared_parts.h"

namespace longspec {

struct DraftScratch {
  // `n_logits`: of a row, at most. Throws std::bad_alloc.
  DraftScratch(const SharedParts& target, const BlockShape& shape, InputForms forms, int max_rows,
               int64_t n_logits)
      : work(shape, target.kernels, max_rows, forms), logits(Z(max_rows) * Z(n_logits) * sizeof(float)) {}

  size_t bytes() const { return work.bytes() + logits.size(); }

  Workspace work;
  AlignedBuffer logits;  // (rows, n_logits)
};

}  // namespace longspec
