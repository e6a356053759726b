// SPDX-License-Identifier: Apache-2.0
//
// How many nodes of each sequence's proposal a pass verifies: all nodes compete for the same rows. Let E be
// the tokens that a sequence may expect of the round, 1 and the chances of its nodes, and T what the round
// takes. Best is the choice with the highest
//
//   mean of E / T          arithmetic mean: total throughput
//   geometric mean of E / T     proportional fairness (Kelly 1998): sum of log E - log T
//
// With one sequence both are (1 + sum of chances) / T, as in docs/decoding.md. Where pieces of prompts are in
// the pass, T is what it takes longer for the roots and nodes: prompts have to be evaluated anyway, and a
// token that is not guessed now is written in a later round, for a later round's price. Else a long piece
// would make any guess look cheap. Nodes are taken one by one, always the one with the highest gain for its
// price. The best number of nodes on this way is chosen, which need not be the first after which the value
// falls: rows are priced in steps, and the next one may be free again.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "policy/pass_cost.h"

namespace longspec {

enum class SpeculationObjective : uint8_t { kFairness, kThroughput };

// What a sequence proposes.
struct SpeculationCandidates {
  std::span<const double> reach;  // chance that the best node is reached, the second best, ...: falling
  double sample_ms = 0;           // of choosing a token
  int min_nodes = 0;              // fewer are not verified
};

struct ShareOptions {
  SpeculationObjective objective = SpeculationObjective::kFairness;
  double margin = 1;       // speculation must promise more than so many times what a plain round does
  double overhead_ms = 0;  // of the round, whatever is chosen: drafting
  double prompts_ms = 0;   // of the pass, were there only its pieces of prompts
  int max_nodes = std::numeric_limits<int>::max();  // of all sequences
};

struct SpeculationShares {
  std::vector<int> nodes;  // by sequence: how many of its best to verify; none if that does not pay
  std::vector<int> best;   // by sequence: those that promise most of all choices of at least one node
  double gain = 1;         // the value of `best`, in plain rounds' values
};

// `parts` are the rows of the pass without nodes, roots and pieces of prompts; `candidates` belong to them
// one by one. A part that proposes nothing counts all the same: it waits for the others' nodes. REQUIRES: as
// many candidates as parts.
SpeculationShares ShareSpeculation(std::span<const PassPart> parts,
                                   std::span<const SpeculationCandidates> candidates, const PassCost& cost,
                                   const ShareOptions& options);

}  // namespace longspec
