// SPDX-License-Identifier: Apache-2.0
#include "draft/growing_drafter.h"

#include <algorithm>

#include "draft/guided_growth.h"

namespace longspec {

DraftTask GrowingDrafter::Draft(const DraftBudget& budget, std::span<const int32_t> committed,
                                TokenTree& tree, PassMeeting& meeting) {
  const Result<int> levels = BeginTree(committed);
  LS_CO_TRY(levels.status());
  if (*levels <= 0) co_return Status();
  meeting_ = &meeting;
  GuidedGrowth guided(*this, budget, kDiceOfModels, committed);
  const DraftBudget most = {.max_nodes = budget.max_nodes, .max_depth = std::min(budget.max_depth, *levels)};
  co_return co_await GrowTree(shape_, most, guided, tree);
}

}  // namespace longspec
