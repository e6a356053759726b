// SPDX-License-Identifier: Apache-2.0
//
// Several drafters, one tree: every member proposes as if it were alone, and the nodes with the best scores
// make the tree within the budget (draft/tree_merge.h). Members are chosen by name, or by "auto", which takes
// whatever these options and this model allow (draft_model/auto_drafter.cc).
//
// If one of them is an adviser (draft/drafter.h), draft models grow their trees from its opinion and their
// own together (draft/mixture.h). Members that take time are asked last, if that gains what it costs
// (draft/asking_gain.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"

namespace longspec {

inline constexpr std::string_view kPortfolioType = "auto", kPortfolioAlias = "portfolio";
// Whether a type names a portfolio: "auto", or several drafters separated by commas.
inline bool IsPortfolio(std::string_view type) {
  return type.find(',') != std::string_view::npos || type == kPortfolioType || type == kPortfolioAlias;
}

std::unique_ptr<Drafter> NewPortfolio(std::string name, std::vector<std::unique_ptr<Drafter>> members);

}  // namespace longspec
