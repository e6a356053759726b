// SPDX-License-Identifier: Apache-2.0
//
// Growing a tree by heads, one for each level, that read one state of the target and do not see the tokens
// before their own (Medusa, TokenSwift): all nodes of a level have the same children. `Growth`: the
// GrowthModel that it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/tree_growth.h"

namespace longspec {

template <typename Growth>
class HeadGrowth : public Growth {
 protected:
  using Growth::Growth;

 private:
  // next[0]: the k most probable tokens of this head. Those of earlier levels were run for the same state.
  virtual DraftTask RunHead(int head, int k, std::vector<std::vector<TokenScore>>& next) = 0;

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) final {
    next.resize(1);
    LS_CO_TRY(co_await RunHead(nodes[static_cast<size_t>(which[0])].depth, k, next));
    next.resize(which.size(), next[0]);
    co_return Status();
  }
};

}  // namespace longspec
