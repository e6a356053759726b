// SPDX-License-Identifier: Apache-2.0
//
// A drafter that is the model of its trees: it grows them level by level (draft/tree_growth.h), mixed with an
// adviser's guesses and the dice (draft/guided_growth.h), and the rows of each level meet those of other
// sequences' drafts.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "draft/drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "longspec/status.h"

namespace longspec {

class GrowingDrafter : public MeetingDrafter, protected GrowthModel {
 public:
  DraftTask Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                  PassMeeting& meeting) final;

 protected:
  explicit GrowingDrafter(TreeShape shape) : shape_(std::move(shape)) {}

  // Makes ready for a tree below the last of `committed`, which stay where they are until it is grown. The
  // levels that it may have; none: nothing is proposed.
  virtual Result<int> BeginTree(std::span<const int32_t> committed) = 0;

  // For Expand: co_await Meet(rows).
  PassMeeting::Turn Meet(MeetingRows& rows) { return meeting_->Join(rows); }

 private:
  const TreeShape shape_;
  PassMeeting* meeting_ = nullptr;  // of the tree that is being grown
};

}  // namespace longspec
