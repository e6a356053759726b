// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_pass.h"

#include <array>

#include "sampling/top_tokens.h"

namespace longspec {

void TopOfHead(ThreadTeam::Worker& worker, const Workspace& ws, const DraftHead& head, const float* x,
               int n_rows, float* logits, int k, std::span<std::vector<TokenScore>> next) {
  const std::array jobs = {LinearJob{&head.matrix, logits}};
  Project(worker, ws, jobs, x, ws.shape.n_embd, n_rows);
  worker.Barrier();
  const auto n_logits = static_cast<int>(head.matrix.n_out);
  const auto share = worker.ShareOf(n_rows);
  for (int r = share.begin; r < share.end; ++r) {
    const auto row = static_cast<size_t>(r);
    TopTokens(*ws.kernels, logits + row * static_cast<size_t>(n_logits), n_logits, k, head.vocab, next[row]);
  }
}

}  // namespace longspec
