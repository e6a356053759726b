// SPDX-License-Identifier: Apache-2.0
#include "draft_model/nested_drafter.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/pass_meeting.h"
#include "draft_model/target_rows.h"
#include "sampling/top_logits.h"

namespace longspec {
namespace {

constexpr size_t kMostRows = 256;  // of a pass: as many as the largest tree has, which any target takes
constexpr DiceModel kDice = {.belief = 1, .dice = 0.8, .other = 0, .missing = 0.05};

}  // namespace

NestedDrafter::NestedDrafter(const DraftContext& context, const NestedOptions& options,
                             std::unique_ptr<WorkingSet> part, std::unique_ptr<Drafter> inner,
                             std::unique_ptr<DraftExtension> extension)
    : target_(*context.target),
      cache_(*context.cache),
      options_(options),
      part_(std::move(part)),
      inner_(std::move(inner)),
      extension_(std::move(extension)),
      pass_taps_(extension_ == nullptr ? Taps() : extension_->taps()) {
  LS_CHECK(inner_ == nullptr || inner_->taps().empty());
}

std::vector<std::string_view> NestedDrafter::sources() const {
  std::vector<std::string_view> sources = {name()};
  if (extension_ != nullptr) {
    for (const std::string_view source : extension_->sources()) sources.push_back(source);
  }
  return sources;
}

Taps NestedDrafter::taps() const {
  Taps taps;
  if (inner_ != nullptr) taps = inner_->taps();
  taps.query_rows =
      part_->wants_queries() ? 64 : 0;  // the newest committed row is among the last of a tree's
  return taps;
}

int NestedDrafter::overlap(std::span<const int32_t> committed, int n) const {
  if (!part_->wants_queries()) return 0;
  return n_queried_ == n && IsBeginning(std::span(text_).first(n_committed_), committed, n) ? 0
                                                                                            : std::min(n, 1);
}

Status NestedDrafter::Follow(std::span<const int32_t> committed) {
  text_.resize(n_committed_);
  const auto same = std::ranges::mismatch(text_, committed).in1 - text_.begin();
  part_->Forget(static_cast<int>(std::min(static_cast<size_t>(same), BeforeLast(committed).size())));
  text_.assign(committed.begin(), committed.end());
  n_committed_ = committed.size();
  part_->Prepare(cache_);  // what was computed before
  if (extension_ != nullptr) extension_->Follow(committed);
  return inner_ == nullptr ? Status() : inner_->Follow(committed);
}

Status NestedDrafter::Read(const CommittedRows& rows) {
  text_.resize(n_committed_);
  const auto more = rows.sequence.subspan(std::min(n_committed_, rows.sequence.size()));
  text_.insert(text_.end(), more.begin(), more.end());
  n_committed_ = text_.size();
  part_->Prepare(cache_);
  if (inner_ != nullptr) LS_TRY(inner_->Read(rows));
  if (extension_ != nullptr) extension_->Read(rows);
  if (!part_->wants_queries() || rows.rows.empty() || !rows.HasQueries(rows.rows.back())) return {};
  part_->SetQueries(rows.QueriesOf(rows.rows.back()));
  n_queried_ = rows.first + static_cast<int>(rows.rows.size());
  return {};
}

// The last chosen token and the guesses below it in one pass over the part. What it chooses is added under
// `tip`.
struct NestedDrafter::Pass final : TargetRows {
  Pass(NestedDrafter* by, const DraftBudget& asked, TokenTree* to, int last)
      : TargetRows(&by->target_, kMostRows),
        of(by),
        budget(asked),
        tree(to),
        inner(by->text_.back()),
        tip(last) {}

  bool is_costly() const override { return true; }
  // Tokens that may still be chosen: each is a level, and a node at least.
  int room() const {
    return std::min(budget.max_depth - tree->node(tip).depth, budget.max_nodes + 1 - tree->size());
  }

  NestedDrafter* of;
  const DraftBudget& budget;
  TokenTree* tree;
  TokenTree inner;  // the guesses
  int tip;          // the last node chosen
  Status status;    // of the extension

 private:
  void Take(const TargetOutput::Segment& output) override { of->Choose(output, *this); }
};

// Pass after pass over the part, or one that is extended: each chooses a token at least, and one more for
// each guess that it confirms.
DraftTask NestedDrafter::Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                               PassMeeting& meeting) {
  if (!HoldsBeforeLast(cache_, committed)) co_return Status();
  LS_CO_TRY(part_->Follow(cache_));
  text_.assign(committed.begin(), committed.end());
  n_committed_ = committed.size();
  for (int tip = 0;;) {
    Pass pass(this, budget, &tree, tip);
    if (pass.room() <= 0) break;
    LS_CO_TRY(co_await GuessInside(budget, pass.room() - 1, &pass.inner, meeting));
    tokens_.clear();
    parents_.clear();
    for (const TreeNode& node : pass.inner.nodes()) {
      tokens_.push_back(node.token);
      parents_.push_back(node.parent);
    }
    Result<KvTransaction> rows = part_->Begin(pass.inner.size());
    LS_CO_TRY(rows.status());
    pass.segment = {.tokens = tokens_,
                    .parents = parents_,
                    .kv = &*rows,
                    .logits = LogitsFor::kAllRows,
                    .taps = pass_taps_.empty() ? nullptr : &pass_taps_};
    LS_CO_TRY(co_await meeting.Join(pass));
    ++n_passes_;
    rows->Commit(kept_);
    if (extension_ != nullptr) co_return std::move(pass.status);
    if (pass.tip == tip) break;  // the target knows none
    tip = pass.tip;
  }
  co_return Status();
}

// Drafters that index the text are asked for the committed text only: what is chosen here may be taken back.
DraftTask NestedDrafter::GuessInside(const DraftBudget& budget, int room, TokenTree* inner,
                                     PassMeeting& meeting) {
  if (inner_ == nullptr || room <= 0) co_return Status();
  if (text_.size() != n_committed_ && !inner_->rewinds()) co_return Status();
  const DraftBudget own = {
      .max_nodes = options_.inner_nodes, .max_depth = room, .foresight = budget.foresight};
  co_return co_await inner_->Draft(own, text_, *inner, meeting);
}

// What the pass says: rows whose keys are to stay go to kept_. Whoever goes on from it does so now, as what
// it computed is gone with the next one.
void NestedDrafter::Choose(const TargetOutput::Segment& output, Pass& pass) {
  const DraftBudget& budget = pass.budget;
  TokenTree& tree = *pass.tree;
  int last_row = 0, room = pass.room();
  const int first_tip = pass.tip;
  kept_.assign(1, 0);
  for (int at = 0; at >= 0 && room > 0 && tree.size() <= budget.max_nodes; --room) {
    GuessesAt(output.logits[at], budget.foresight.has_dice() ? kMaxTopLogits : options_.width);
    const auto text = std::span<const int32_t>(text_);
    budget.foresight.RefineDistribution(
        kDice, {.committed = text.first(n_committed_), .drafted = text.subspan(n_committed_)}, rest_,
        guesses_);
    if (guesses_.empty()) break;
    const size_t n =
        std::min(guesses_.size(), Z(std::min(options_.width, budget.max_nodes + 1 - tree.size())));
    const int parent = pass.tip;
    for (size_t i = 0; i < n; ++i) {
      const double score = static_cast<double>(tree.node(parent).score) * guesses_[i].chance;
      const int node = tree.AddChild(parent, guesses_[i].token, static_cast<float>(score));
      if (i == 0) pass.tip = node;
    }
    last_row = at;
    ++n_chosen_;
    text_.push_back(guesses_[0].token);
    at = pass.inner.FindChild(at, guesses_[0].token);
    if (at >= 0) kept_.push_back(at);
  }
  if (extension_ != nullptr && pass.tip != first_tip) pass.status = Extend(output, last_row, pass);
}

Status NestedDrafter::Extend(const TargetOutput::Segment& output, int row, const Pass& pass) {
  if (pass.room() <= 0) return {};
  const DraftBudget left = {.max_nodes = pass.budget.max_nodes + 1 - pass.tree->size(),
                            .max_depth = pass.budget.max_depth - pass.tree->node(pass.tip).depth,
                            .foresight = pass.budget.foresight};
  proposals_.clear();
  LS_TRY(extension_->Propose(output, row, left, text_, &proposals_));
  merger_.AddBest(proposals_, pass.budget.max_nodes, *pass.tree, pass.tip, /*first_source=*/1);
  return {};
}

// The likeliest tokens and their shares to guesses_, what is left to rest_.
void NestedDrafter::GuessesAt(const LogitRow& row, int most) {
  best_.resize(Z(most));
  best_logits_.resize(Z(most));
  float largest = 0;
  const int n = row.Best(best_, best_logits_, &largest);
  guesses_.clear();
  rest_ = 1;
  if (largest == 0) return;
  for (size_t i = 0; i < Z(n); ++i) {
    const auto below = static_cast<double>(best_logits_[i] - best_logits_[0]);
    guesses_.push_back({.token = best_[i], .chance = static_cast<double>(largest) * std::exp(below)});
    rest_ = std::max(0.0, rest_ - guesses_.back().chance);
  }
}

size_t NestedDrafter::bytes() const {
  return part_->bytes() + (inner_ == nullptr ? 0 : inner_->bytes()) +
         (extension_ == nullptr ? 0 : extension_->bytes()) + text_.capacity() * sizeof(int32_t);
}

std::vector<std::pair<std::string, std::string>> NestedDrafter::uses() const {
  return inner_ == nullptr ? std::vector<std::pair<std::string, std::string>>() : inner_->uses();
}

std::string NestedDrafter::notice() const { return inner_ == nullptr ? std::string() : inner_->notice(); }

}  // namespace longspec
