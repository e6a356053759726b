// SPDX-License-Identifier: Apache-2.0
//
// Several drafters, one tree: every member proposes as if it were alone, and the nodes with the best scores
// make the tree within the budget (draft/tree_merge.h). Members are chosen by name, or by "auto", which takes
// whatever these options and this model allow (draft_model/auto_drafter.cc).
//
// If one of them is an adviser (draft/drafter.h), draft models grow their trees from its opinion and their
// own together (draft/mixture.h). Whom it pays to ask a policy knows (policy/asking.h): it asks members one
// by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "draft/pass_meeting.h"

namespace longspec {

inline constexpr std::string_view kPortfolioType = "auto", kPortfolioAlias = "portfolio";
// Whether a type names a portfolio: "auto", or several drafters separated by commas.
inline bool IsPortfolio(std::string_view type) {
  return type.find(',') != std::string_view::npos || type == kPortfolioType || type == kPortfolioAlias;
}

class Portfolio : public MeetingDrafter {
 public:
  Portfolio* portfolio() final { return this; }
  // In the order of sources(). Whoever asks one asks through the portfolio.
  virtual std::span<const std::unique_ptr<Drafter>> members() const = 0;

  // Asks all of them.
  DraftTask Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                  PassMeeting& meeting) final;
  // The same step by step. A proposal begins, of this budget.
  virtual void Begin(const DraftBudget& budget, std::span<const int32_t> committed) = 0;
  // A member proposes, within a budget of its own.
  virtual DraftTask Ask(size_t member, const DraftBudget& budget, std::span<const int32_t> committed,
                        PassMeeting& meeting) = 0;
  // What it proposed; the root alone: nothing, or it was not asked.
  virtual const TokenTree& proposal(size_t member) const = 0;
  // Adds the best of what was proposed so far to a root.
  virtual void Merge(int max_nodes, TokenTree& tree) = 0;
};

std::unique_ptr<Drafter> NewPortfolio(std::string name, std::vector<std::unique_ptr<Drafter>> members);

}  // namespace longspec
