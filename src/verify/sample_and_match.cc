// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "verify/verify.h"

namespace longspec {

Accepted SampleAndMatch(const TokenTree& tree, const LogitsView& logits, const Sampler& sampler,
                        std::span<const int32_t> committed, Sampler::Scratch& scratch) {
  LS_CHECK(logits.n_rows == tree.size());
  LS_CHECK(!committed.empty() && committed.back() == tree.node(0).token);
  Accepted accepted;
  std::vector<int32_t> drafted;  // the path below the root so far
  int node = 0;
  while (node >= 0) {
    const int32_t token = sampler.Sample(logits.row(node), {.committed = committed, .drafted = drafted},
                                         committed.size() + drafted.size(), scratch);
    accepted.nodes.push_back(node);
    accepted.tokens.push_back(token);
    drafted.push_back(token);
    node = tree.FindChild(node, token);
  }
  return accepted;
}

}  // namespace longspec
