// SPDX-License-Identifier: Apache-2.0
//
// A drafter that is the model of its trees: it grows them level by level (draft/tree_growth.h), mixed with an
// adviser's guesses and the dice (GuidedGrowth), and the rows of each level (ForwardRows) meet those of other
// sequences' drafts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "draft/drafter.h"
#include "draft/foresight.h"
#include "draft/mixture.h"
#include "draft/pass_meeting.h"
#include "draft/tree_growth.h"
#include "draft/tree_shape.h"
#include "longspec/status.h"

namespace longspec {

class GrowingDrafter : public MeetingDrafter, protected GrowthModel {
 public:
  DraftTask Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                  PassMeeting& meeting) final;
  void SetMixture(Mixture* mixture) final { mixture_ = mixture; }
  bool pays_by_level() const final { return true; }

 protected:
  explicit GrowingDrafter(TreeShape shape) : shape_(std::move(shape)) {}

  // Makes ready for a tree below the last of `committed`, which stay where they are until it is grown. The
  // levels that it may have; none: nothing is proposed.
  virtual Result<int> BeginTree(std::span<const int32_t> committed) = 0;

  // For Expand: co_await Meet(rows).
  PassMeeting::Turn Meet(MeetingRows& rows) { return meeting_->Join(rows); }

 private:
  const TreeShape shape_;
  Mixture* mixture_ = nullptr;      // null: none
  PassMeeting* meeting_ = nullptr;  // of the tree that is being grown
};

// --- The rows that one draft hands to a forward pass of its model, and how the rows of several drafts are
// cut into passes.

// Some of the rows of one draft in a pass, `begin` the first of them.
template <typename Rows>
struct RowPiece {
  Rows* of;
  size_t begin, n;
  auto rows() const { return of->rows.subspan(begin, n); }
};

// Rows to run, which must see nothing that has not been run, and do not see each other; the k most probable
// tokens after each go to `next`. All borrowed. `Rows`: the class that is made of it, with what a row of that
// model needs besides. `Forward` runs pieces of several drafts in one pass: RunPass(pieces) of the first
// one's.
template <typename Rows, typename Forward, typename Row>
struct ForwardRows : MeetingRows {
  ForwardRows(Forward* of, std::span<const Row> some, int n_best, std::vector<std::vector<TokenScore>>* to)
      : forward(of), rows(some), k(n_best), next(to) {}

  // In as few passes as hold all rows, in their order.
  Status Run(std::span<MeetingRows* const> together) final {
    std::vector<RowPiece<Rows>> pieces;
    size_t n_rows = 0;
    for (MeetingRows* const other : together) {
      auto* const one = static_cast<Rows*>(other);
      one->next->resize(one->rows.size());
      for (size_t begin = 0; begin < one->rows.size(); begin += pieces.back().n) {
        if (n_rows == kMost) {
          LS_TRY(RunPass(pieces));
          pieces.clear();
          n_rows = 0;
        }
        pieces.push_back(
            {.of = one, .begin = begin, .n = std::min(kMost - n_rows, one->rows.size() - begin)});
        n_rows += pieces.back().n;
      }
    }
    return pieces.empty() ? Status() : RunPass(pieces);
  }
  Status RunAlone() {
    MeetingRows* const alone = this;
    return Run({&alone, 1});
  }

  Forward* forward;
  std::span<const Row> rows;
  int k;
  std::vector<std::vector<TokenScore>>* next;

 private:
  static constexpr size_t kMost = static_cast<size_t>(Forward::kMaxRows);

  static Status RunPass(std::span<const RowPiece<Rows>> pieces) {
    return pieces.front().of->forward->RunPass(pieces);
  }
};

// What a pass has to find for each of its rows.
template <typename Rows>
int MostWanted(std::span<const RowPiece<Rows>> pieces) {
  int k = 0;
  for (const RowPiece<Rows>& piece : pieces) k = std::max(k, piece.of->k);
  return k;
}

// Hands out what was found for the rows of a pass.
template <typename Rows>
void HandOut(std::span<const RowPiece<Rows>> pieces, std::span<std::vector<TokenScore>> found) {
  size_t row = 0;
  for (const RowPiece<Rows>& piece : pieces) {
    for (size_t i = 0; i < piece.n; ++i, ++row) {
      std::vector<TokenScore>& to = (*piece.of->next)[piece.begin + i];
      to.swap(found[row]);
      to.resize(std::min(to.size(), static_cast<size_t>(piece.of->k)));
    }
  }
}

// A model's probabilities for growing a tree, mixed with an adviser's if there is one (mixture.h), which has
// the word alone below the model's budget and at unlikely nodes, and refined by what is known of the target's
// choice (foresight.h). Wraps the model for one call of GrowTree.
class GuidedGrowth final : public GrowthModel {
 public:
  // All is borrowed but the budget, the model's. `committed` ends with the tree's root.
  GuidedGrowth(GrowthModel& model, Mixture* mixture, const DraftBudget& budget, const DiceModel& dice,
               std::span<const int32_t> committed)
      : model_(model), mixture_(mixture), budget_(budget), dice_(dice), committed_(committed) {}

  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override;

 private:
  bool IsWorthAsking(const GrownNode& node) const;
  int Candidates(int k) const;  // of a node that is to have k children
  void Refine(std::span<const GrownNode> nodes, int32_t node, int k, std::vector<TokenScore>& next);

  GrowthModel& model_;
  Mixture* const mixture_;  // null: none
  const DraftBudget budget_;
  const DiceModel dice_;
  const std::span<const int32_t> committed_;
  std::vector<int32_t> path_;
  std::vector<Guess> guesses_;
  std::vector<int32_t> asked_;
  std::vector<std::vector<TokenScore>> answers_;  // to these
};

}  // namespace longspec
