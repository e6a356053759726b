// SPDX-License-Identifier: Apache-2.0
//
// What SpeculationOptions::tree says: a shape to drafters that grow their trees from a model's probabilities,
// to others how many continuations a tree holds.
#pragma once

#include <string>
#include <vector>

#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

struct TreeShape {
  enum class Kind { kBeam, kBestFirst, kOptTree, kEagle2, kStatic };
  Kind kind = Kind::kBeam;
  std::vector<int> widths = {4, 16, 16, 16, 16};  // kBeam: nodes of each level (LongSpec's own shape)
  int max_depth = 10;                             // kBestFirst: most levels; kOptTree: its max_depth
  double threshold = 0.7;       // kOptTree: least gain of a level that is followed by another
  bool use_last_level = false;  // kOptTree: the newest level counts as well
  // kEagle2: children of each node of a beam that is as wide, levels after the first, and nodes of the tree.
  // The defaults are those of the released code since EAGLE-3.
  int top_k = 10, n_loops = 7, total = 59;
  // kStatic: each node as the ranks of its path's tokens among their siblings, 0 the most probable; by
  // (length, ranks), parents before children.
  std::vector<std::vector<int>> paths = {};
};

// "", "beam": LongSpec's widths. "chain": one node a level. "8": five levels of up to 8. "4,16,16": these
// widths. "best[:DEPTH]": the most probable nodes. "opt[:THRESHOLD[:DEPTH]]", "opt-last[...]": OPT-Tree.
// "eagle2[:K[:DEPTH[:TOTAL]]]": EAGLE-2's.
// "medusa": Medusa's 63 nodes. "tokenswift": TokenSwift's 39. "[[0],[1],[0,0]]", also with round brackets: a
// fixed tree, as Medusa and EAGLE-1 have them.
Result<TreeShape> ParseTreeShape(const std::string& text);

// How many continuations a tree holds. "" and "chain": 1; a number from 1 to 64: itself.
Result<int> ParseTreeWidth(const std::string& tree);
// DrafterEntry::check of drafters of which that is all that can be wrong.
inline Status CheckTreeWidth(const SpeculationOptions& options) {
  return ParseTreeWidth(options.tree).status();
}

}  // namespace longspec
