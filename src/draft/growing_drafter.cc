// SPDX-License-Identifier: Apache-2.0
#include "draft/growing_drafter.h"

#include <algorithm>
#include <limits>

#include "draft/guided_growth.h"

namespace longspec {
namespace {

const TreeShape kAsDeepAsItIsWorth = {.kind = TreeShape::Kind::kBestFirst,
                                      .max_depth = std::numeric_limits<int>::max()};

}  // namespace

DraftTask GrowingDrafter::Draft(const DraftBudget& budget, std::span<const int32_t> committed,
                                TokenTree& tree, PassMeeting& meeting) {
  const Result<int> levels = BeginTree(committed);
  LS_CO_TRY(levels.status());
  if (*levels <= 0) co_return Status();
  meeting_ = &meeting;
  DraftBudget own = budget;
  // Where the model ends an adviser goes on, in trees that are as deep as they are worth.
  const bool goes_on = budget.mixture != nullptr && shape_.kind == TreeShape::Kind::kBestFirst;
  if (goes_on) {
    own.max_levels = std::min({own.max_levels, *levels, shape_.max_depth});
  } else {
    own.max_depth = std::min(own.max_depth, *levels);
  }
  GuidedGrowth guided(*this, own, kDiceOfModels, committed);
  const DraftBudget most = {.max_nodes = own.max_nodes, .max_depth = own.max_depth};
  co_return co_await GrowTree(goes_on ? kAsDeepAsItIsWorth : shape_, most, guided, tree);
}

}  // namespace longspec
