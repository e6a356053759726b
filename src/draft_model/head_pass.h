// SPDX-License-Identifier: Apache-2.0
//
// The end of a draft's pass: its head, and the most probable tokens of each row.
#pragma once

#include <span>
#include <vector>

#include "base/thread_team.h"
#include "draft/tree_growth.h"
#include "draft_model/draft_weights.h"
#include "model/block.h"

namespace longspec {

// `x`: (n_rows, n_embd), converted for the product and whole. `logits`: (n_rows, head.matrix.n_out), filled.
// next[r]: the k most probable tokens after row r. Called by every worker; one barrier, none at the end.
void TopOfHead(ThreadTeam::Worker& worker, const Workspace& ws, const DraftHead& head, const float* x,
               int n_rows, float* logits, int k, std::span<std::vector<TokenScore>> next);

}  // namespace longspec
