// SPDX-License-Identifier: Apache-2.0
//
// What a drafter's proposals promised lately, level by level: the chances that their best node of a level was
// reached, their second best, and so on, beside the chance that any of the level above was. So what is known
// of levels that are asked for seldom goes with what is known of those above them, and a level below all that
// were asked for is expected to go on like the last. Not thread-safe.
#pragma once

#include <span>
#include <vector>

#include "tree/token_tree.h"

namespace longspec {

class LevelChances {
 public:
  // A proposal that was asked for so many levels. `order`: its nodes, best first; `reach`: by node.
  void Learn(const TokenTree& tree, std::span<const int> order, std::span<const double> reach, int levels);

  // How many levels something is known of.
  int known() const { return static_cast<int>(levels_.size()); }

  // Appends the chances of the nodes of this level, from 1, best first, and returns their sum. `above`: the
  // sum of the level above, 1 for the first.
  double Append(int level, double above, std::vector<double>* reach) const;

 private:
  struct Level {
    double above = 0;           // running means, where it was asked for
    std::vector<double> reach;  // best first
  };
  std::vector<Level> levels_;
  std::vector<std::vector<double>> by_level_;  // of one proposal
};

}  // namespace longspec
