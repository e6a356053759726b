// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter.h"

#include "draft/pass_meeting.h"

namespace longspec {

DraftTask Drafter::Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                         PassMeeting& /*meeting*/) {
  return Propose(budget, committed, tree);
}

Status MeetingDrafter::Propose(const DraftBudget& budget, std::span<const int32_t> committed,
                               TokenTree& tree) {
  PassMeeting alone;
  return RunNow(Draft(budget, committed, tree, alone));
}

}  // namespace longspec
