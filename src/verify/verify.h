// SPDX-License-Identifier: Apache-2.0
//
// Lossless verification of one-hot proposals: sample-and-match (research: deterministic children, one target
// draw per node). At each node the target's own token is chosen once, with the dice of that position, and
// compared with the node's children. So the committed tokens are, token for token, those of plain decoding.
// Pure functions: no model, no cache, no text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/constraint.h"
#include "longspec/status.h"
#include "sampling/logit_rows.h"
#include "sampling/sampler.h"
#include "tree/token_tree.h"

namespace longspec {

struct Accepted {
  std::vector<int32_t> nodes;   // the accepted path: node 0, then each matched child. Never empty.
  std::vector<int32_t> tokens;  // one per node of the path: the target's token there. The last is the bonus
                                // or correction token, which no node of the tree stands for: none whose
                                // logits are numbers, that is.
};

// `logits`: a row for each node. `committed` ends with the root's token; the root's own draw has absolute
// position committed.size(). A row that a choice is made from is checked first (sampling/logits_check.h). One
// that is wrong ends the walk as if its node were not there; the root's is an error. So an error comes after
// the same tokens as in plain decoding. Rows off the path are not looked at. `constraint` (may be null) is at
// the root: tokens that it forbids at a node are as if their logits were minus infinity, before anything else
// is done with the row. Afterwards it is behind the tokens, and the walk ends with an end token that it
// accepted; after an error it is at the root. A row in which mask and biases leave nothing that can be chosen
// is one that is wrong.
Result<Accepted> SampleAndMatch(const TokenTree& tree, const LogitRows& logits, const Sampler& sampler,
                                std::span<const int32_t> committed, Sampler::Scratch& scratch,
                                Constraint* constraint = nullptr);

// The tree without the nodes that `constraint`, which is at its root before and after, forbids, and without
// those below them or below an end token.
TokenTree Allowed(const TokenTree& tree, Constraint& constraint);

}  // namespace longspec
