// SPDX-License-Identifier: Apache-2.0
//
// Who guesses further than a pass over a part of the cache has chosen (draft_model/nested_drafter.h), from
// what that pass computed. What it guesses no other pass over the part looks at: the whole cache alone
// verifies it. One serves one sequence. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "model/target.h"
#include "tree/token_tree.h"

namespace longspec {

class DraftExtension {
 public:
  virtual ~DraftExtension() = default;
  // One for each tree that it proposes.
  virtual std::vector<std::string_view> sources() const = 0;
  // What it needs of the pass over the part.
  virtual Taps taps() const = 0;

  // The sequence's, as a drafter is told (draft/drafter.h).
  virtual void Follow(std::span<const int32_t> committed) = 0;
  virtual void Read(const CommittedRows& rows) = 0;

  // What comes after the text, which ends with what row `row` of the pass chose: trees below that token, of
  // which the best nodes are taken. The budget is what is left of the proposal's.
  virtual Status Propose(const TargetOutput::Segment& pass, int row, const DraftBudget& budget,
                         std::span<const int32_t> text, std::vector<TokenTree>* trees) = 0;

  virtual size_t bytes() const = 0;
};

}  // namespace longspec
