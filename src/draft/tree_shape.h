// SPDX-License-Identifier: Apache-2.0
//
// SpeculationOptions::tree of drafters that grow their trees from a model's probabilities.
#pragma once

#include <string>
#include <vector>

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

}  // namespace longspec
