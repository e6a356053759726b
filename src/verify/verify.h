// SPDX-License-Identifier: Apache-2.0
//
// Lossless verification of one-hot proposals: sample-and-match (research: deterministic children, one target
// draw per node). At each node the target's own token is chosen once, with the dice of that position,
// and matched against the node's children. Hence the committed tokens are, token for token, those of plain
// decoding. Pure functions: no model, no cache, no text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspec/status.h"
#include "sampling/sampler.h"
#include "tree/token_tree.h"

namespace longspec {

// Rows of target logits, one per tree node: (n_rows, vocab) f32, row stride `vocab`.
struct LogitsView {
  const float* data = nullptr;
  int n_rows = 0;
  int vocab = 0;

  std::span<const float> row(int i) const {
    return {data + static_cast<size_t>(i) * static_cast<size_t>(vocab), static_cast<size_t>(vocab)};
  }
};

struct Accepted {
  std::vector<int32_t> nodes;   // the accepted path: node 0, then each matched child. Never empty.
  std::vector<int32_t> tokens;  // one per node of the path: the target's token there. The last is the bonus
                                // or correction token, which no node of the tree stands for: none whose
                                // logits are numbers, that is.
};

// `committed` ends with the root's token; the root's own draw has absolute position committed.size(). A row
// that a choice is made from is checked first (sampling/logits_check.h). One that is wrong ends the walk as
// if its node were not there; the root's is an error. So an error comes after the same tokens as in plain
// decoding. Rows off the path are not looked at.
Result<Accepted> SampleAndMatch(const TokenTree& tree, const LogitsView& logits, const Sampler& sampler,
                                std::span<const int32_t> committed, Sampler::Scratch& scratch);

}  // namespace longspec
