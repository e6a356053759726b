// SPDX-License-Identifier: Apache-2.0
//
// Drafting with the target itself on a part of its cache (kv/working_set.h): keys and values of committed
// positions are copied from the sequence's own cache, so no prefill is needed, and none of the catching up
// that a draft's own would. What it chooses there is proposed as a chain, with the next likeliest tokens
// beside it. A drafter inside may guess for it, so that one pass over the part yields several tokens; what it
// guesses counts only where it is what the part says. An extension guesses further from what a pass computed,
// and then one pass is a proposal. Each pass costs one over that small cache: worth it where reading the
// whole cache is most of a step. MagicDec, TriForce, TokenSwift and exact partial verification are settings
// of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "draft/pass_meeting.h"
#include "draft/tree_merge.h"
#include "kv/working_set.h"
#include "model/target.h"
#include "tree/token_tree.h"

namespace longspec {

// Who guesses further than a pass over a part of the cache has chosen (draft_model/nested_drafter.h), from
// what that pass computed. What it guesses no other pass over the part looks at: the whole cache alone
// verifies it. One serves one sequence. Not thread-safe.

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

struct NestedOptions {
  std::string_view name;
  int width = 1;        // children of a node at most
  int inner_nodes = 8;  // of the drafter inside, a pass at most
};

class NestedDrafter final : public MeetingDrafter {
 public:
  // `inner`: guesses for the part; null: nobody does. Not one that reads the target's states. `extension`:
  // null: there is pass after pass.
  NestedDrafter(const DraftContext& context, const NestedOptions& options, std::unique_ptr<WorkingSet> part,
                std::unique_ptr<Drafter> inner, std::unique_ptr<DraftExtension> extension = nullptr);

  std::string_view name() const override { return options_.name; }
  // Itself, for what passes choose, and the extension's.
  std::vector<std::string_view> sources() const override;
  bool uses_dice() const override { return true; }
  bool pays_by_level() const override { return true; }
  Taps taps() const override;

  // Of the newest position queries are wanted.
  int overlap(std::span<const int32_t> committed, int n) const override;
  Status Follow(std::span<const int32_t> committed) override;
  DraftTask Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                  PassMeeting& meeting) override;
  // What the round committed is copied from the sequence's cache when it is next needed.
  Status Read(const CommittedRows& rows) override;

  size_t bytes() const override;
  std::vector<std::pair<std::string, std::string>> uses() const override;
  std::string notice() const override;

  // Passes over the part so far, and tokens they chose.
  int64_t n_passes() const { return n_passes_; }
  int64_t n_chosen() const { return n_chosen_; }
  const WorkingSet& part() const { return *part_; }

 private:
  struct Pass;

  DraftTask GuessInside(const DraftBudget& budget, int room, TokenTree* inner, PassMeeting& meeting);
  void Choose(const TargetOutput::Segment& output, Pass& pass);
  Status Extend(const TargetOutput::Segment& output, int row, const Pass& pass);
  void GuessesAt(const LogitRow& row, int most);

  Target& target_;
  const KvCache& cache_;  // the sequence's
  const NestedOptions options_;
  const std::unique_ptr<WorkingSet> part_;
  const std::unique_ptr<Drafter> inner_;
  const std::unique_ptr<DraftExtension> extension_;
  const Taps pass_taps_;  // of passes over the part
  int64_t n_passes_ = 0, n_chosen_ = 0;

  std::vector<int32_t> text_;  // committed, and what a proposal chose after it
  size_t n_committed_ = 0;
  int n_queried_ = 0;  // positions up to the one whose queries the part was given

  // Of one proposal.
  std::vector<int32_t> best_, tokens_, parents_, kept_;  // the last three of its last pass
  std::vector<float> best_logits_;
  std::vector<Guess> guesses_;
  double rest_ = 1;
  std::vector<TokenTree> proposals_;
  TreeMerger merger_;
};

}  // namespace longspec
