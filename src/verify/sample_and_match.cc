// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/status_macros.h"
#include "verify/verify.h"

namespace longspec {
namespace {

Status NothingLeft(uint64_t position, const Constraint* constraint) {
  return InvalidArgument("at position " + std::to_string(position) + ": none of the tokens" +
                         (constraint == nullptr ? "" : " that the grammar allows") +
                         " can be chosen: their logits or their biases are minus infinity");
}

// The token at a node, which the constraint has then accepted.
Result<int32_t> Choose(const LogitRow& row, const Sampler& sampler, const TokenHistory& history,
                       Sampler::Scratch& scratch, Constraint* constraint) {
  const uint64_t position = history.size();
  LS_TRY(row.Check(position));
  std::optional<std::span<const uint32_t>> allowed;
  if (constraint != nullptr) {
    LS_ASSIGN(allowed, constraint->Mask());
  }
  const int32_t token = row.Choose(sampler, history, scratch, allowed);
  // Mask and biases may each leave something and together nothing.
  const bool chosen = token != kNoToken && (constraint == nullptr || constraint->Accept(token));
  if (!chosen) return NothingLeft(position, constraint);
  return token;
}

}  // namespace

Result<Accepted> SampleAndMatch(const TokenTree& tree, const LogitRows& logits, const Sampler& sampler,
                                std::span<const int32_t> committed, Sampler::Scratch& scratch,
                                Constraint* constraint) {
  LS_CHECK(logits.size() == tree.size());
  LS_CHECK(!committed.empty() && committed.back() == tree.node(0).token);
  Accepted accepted;
  for (int node = 0; node >= 0;) {
    const auto token = Choose(logits[node], sampler, {.committed = committed, .drafted = accepted.tokens},
                              scratch, constraint);
    if (!token.ok()) {
      if (node == 0) return token.status();
      break;  // what comes before it stands, and the next round has this row as its root
    }
    accepted.nodes.push_back(node);
    accepted.tokens.push_back(*token);
    if (constraint != nullptr && constraint->ended()) break;
    node = tree.FindChild(node, *token);
  }
  return accepted;
}

TokenTree Allowed(const TokenTree& tree, Constraint& constraint) {
  std::vector<bool> keep(static_cast<size_t>(tree.size()), false);
  keep[0] = true;
  const auto visit = [&](const auto& self, int parent) -> void {
    for (int child = tree.node(parent).first_child; child >= 0; child = tree.node(child).next_sibling) {
      if (!constraint.Accept(tree.node(child).token)) continue;
      keep[static_cast<size_t>(child)] = true;
      if (!constraint.ended()) self(self, child);
      constraint.Rollback(1);
    }
  };
  visit(visit, 0);
  if (std::ranges::find(keep, false) == keep.end()) return tree;
  return Pruned(tree, keep);
}

}  // namespace longspec
