// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "sampling/logits_check.h"
#include "verify/verify.h"

namespace longspec {

Result<Accepted> SampleAndMatch(const TokenTree& tree, const LogitsView& logits, const Sampler& sampler,
                                std::span<const int32_t> committed, Sampler::Scratch& scratch) {
  LS_CHECK(logits.n_rows == tree.size());
  LS_CHECK(!committed.empty() && committed.back() == tree.node(0).token);
  Accepted accepted;
  std::vector<int32_t> drafted;  // the path below the root so far
  int node = 0;
  while (node >= 0) {
    const size_t position = committed.size() + drafted.size();
    if (Status status = CheckLogits(logits.row(node), position); !status.ok()) {
      if (node == 0) return status;
      break;  // what comes before it stands, and the next round has this row as its root
    }
    const int32_t token =
        sampler.Sample(logits.row(node), {.committed = committed, .drafted = drafted}, position, scratch);
    accepted.nodes.push_back(node);
    accepted.tokens.push_back(token);
    drafted.push_back(token);
    node = tree.FindChild(node, token);
  }
  return accepted;
}

}  // namespace longspec
