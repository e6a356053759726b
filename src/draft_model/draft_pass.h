// SPDX-License-Identifier: Apache-2.0
//
// What passes of all draft models have: what they work in, the embedding at their beginning, the head at
// their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/size.h"
#include "base/thread_team.h"
#include "draft/tree_growth.h"
#include "draft_model/draft_weights.h"
#include "longspec/status.h"
#include "model/block.h"
#include "model/shared_parts.h"

namespace longspec {

// What the passes of one draft model work in: one for all sequences that draft with it, as one pass runs at a
// time. Nothing in it outlives a pass.
struct DraftScratch {
  // `n_logits`: of a row, at most. Throws std::bad_alloc.
  DraftScratch(const SharedParts& target, const BlockShape& shape, InputForms forms, int max_rows,
               int64_t n_logits)
      : work(shape, target.lane.kernels, max_rows, forms),
        logits(Z(max_rows) * Z(n_logits) * sizeof(float)) {}

  size_t bytes() const { return work.bytes() + logits.size(); }

  Workspace work;
  AlignedBuffer logits;  // (rows, n_logits)
};

// The end of a pass: the head, and the most probable tokens of each row. `x`: (n_rows, n_embd), converted for
// the product and whole. `logits`: (n_rows, head.matrix.n_out), filled. next[r]: the k most probable tokens
// after row r. Called by every worker; one barrier, none at the end.
void TopOfHead(ThreadTeam::Worker& worker, const Workspace& ws, const DraftHead& head, const float* x,
               int n_rows, float* logits, int k, std::span<std::vector<TokenScore>> next);

}  // namespace longspec
