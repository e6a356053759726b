// SPDX-License-Identifier: Apache-2.0
#include "draft/nested_drafter.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "draft/top_logits.h"
#include "model/shared_parts.h"

namespace longspec {
namespace {

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

Status NestedDrafter::Follow(std::span<const int32_t> committed) {
  text_.resize(n_committed_);
  const auto same = std::ranges::mismatch(text_, committed).in1 - text_.begin();
  part_->Forget(static_cast<int>(std::min<ptrdiff_t>(same, std::ssize(committed) - 1)));
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
  const LlamaConfig& c = *target_.shared_parts()->config;
  std::vector<const float*> queries;
  for (int layer = 0; layer < c.n_layer; ++layer) {
    queries.push_back(rows.QueriesOf(rows.rows.back(), layer, c.n_head * c.head_dim));
  }
  part_->SetQueries(queries);
  return {};
}

// Pass after pass over the part, or one that is extended: each chooses a token at least, and one more for
// each guess that it confirms.
Status NestedDrafter::Propose(const DraftBudget& budget, std::span<const int32_t> committed,
                              TokenTree& tree) {
  if (cache_.length() + 1 != static_cast<int>(committed.size()))
    return {};  // the keys of a prompt's end, which it goes on from, are not there yet
  LS_TRY(part_->Follow(cache_));
  text_.assign(committed.begin(), committed.end());
  n_committed_ = committed.size();
  int tip = 0;
  while (tree.node(tip).depth < budget.asked_depth() && tree.size() <= budget.max_nodes) {
    const int room = budget.asked_depth() - tree.node(tip).depth;
    TokenTree inner(text_.back());
    LS_TRY(GuessInside(budget, room - 1, &inner));
    LS_ASSIGN(const int next, RunPass(tip, room, budget, inner, tree));
    if (next < 0) break;
    tip = next;
    if (extension_ != nullptr) return Extend(tip, budget, tree);
  }
  return {};
}

Status NestedDrafter::Extend(int tip, const DraftBudget& budget, TokenTree& tree) {
  const DraftBudget left = {.max_nodes = budget.max_nodes + 1 - tree.size(),
                            .max_depth = budget.asked_depth() - tree.node(tip).depth,
                            .foresight = budget.foresight};
  if (left.max_nodes <= 0 || left.max_depth <= 0) return {};
  proposals_.clear();
  LS_TRY(extension_->Propose(pass_.segments[0], last_row_, left, text_, &proposals_));
  merger_.AddBest(proposals_, budget.max_nodes, tree, tip, /*first_source=*/1);
  return {};
}

// Drafters that index the text are asked for the committed text only: what is chosen here may be taken back.
Status NestedDrafter::GuessInside(const DraftBudget& budget, int room, TokenTree* inner) {
  if (inner_ == nullptr || room <= 0) return {};
  if (text_.size() != n_committed_ && !inner_->rewinds()) return {};
  const DraftBudget own = {
      .max_nodes = options_.inner_nodes, .max_depth = room, .foresight = budget.foresight};
  return inner_->Propose(own, text_, *inner);
}

// The last chosen token and the guesses below it in one pass over the part; what it chooses is added under
// `tip`, and its keys are kept. Returns the last node chosen, -1 if the target knows none.
Result<int> NestedDrafter::RunPass(int tip, int room, const DraftBudget& budget, const TokenTree& inner,
                                   TokenTree& tree) {
  tokens_.clear();
  parents_.clear();
  for (const TreeNode& node : inner.nodes()) {
    tokens_.push_back(node.token);
    parents_.push_back(node.parent);
  }
  LS_ASSIGN(KvTransaction rows, part_->Begin(inner.size()));
  const ForwardSegment segment = {.tokens = tokens_,
                                  .parents = parents_,
                                  .kv = &rows,
                                  .logits = LogitsFor::kAllRows,
                                  .taps = pass_taps_.empty() ? nullptr : &pass_taps_};
  LS_ASSIGN(pass_, target_.Forward({&segment, 1}));
  ++n_passes_;
  kept_.assign(1, 0);
  bool known = false;
  for (int at = 0; at >= 0 && room > 0 && tree.size() <= budget.max_nodes; --room) {
    const auto vocab = Z(pass_.vocab);
    GuessesAt({pass_.segments[0].logits + Z(at) * vocab, vocab},
              budget.foresight.has_dice() ? kMaxTopLogits : options_.width);
    const auto text = std::span<const int32_t>(text_);
    budget.foresight.RefineDistribution(
        kDice, {.committed = text.first(n_committed_), .drafted = text.subspan(n_committed_)}, rest_,
        guesses_);
    if (guesses_.empty()) break;
    const size_t n =
        std::min(guesses_.size(), Z(std::min(options_.width, budget.max_nodes + 1 - tree.size())));
    const int parent = tip;
    for (size_t i = 0; i < n; ++i) {
      const double score = static_cast<double>(tree.node(parent).score) * guesses_[i].chance;
      const int node = tree.AddChild(parent, guesses_[i].token, static_cast<float>(score));
      if (i == 0) tip = node;
    }
    known = true;
    last_row_ = at;
    ++n_chosen_;
    text_.push_back(guesses_[0].token);
    at = inner.FindChild(at, guesses_[0].token);
    if (at >= 0) kept_.push_back(at);
  }
  rows.Commit(kept_);
  return known ? tip : -1;
}

// The likeliest tokens and their shares to guesses_, what is left to rest_.
void NestedDrafter::GuessesAt(std::span<const float> logits, int most) {
  best_.resize(Z(most));
  const int n = TopLogits(logits, best_);
  guesses_.clear();
  rest_ = 1;
  if (n == 0) return;
  const auto first = Z(best_[0]);
  if (!std::isfinite(logits[first])) return;
  const auto largest = static_cast<double>(ShareOfLargest(logits, best_[0]));
  for (const int32_t token : std::span(best_).first(Z(n))) {
    const float below = logits[Z(token)] - logits[first];
    guesses_.push_back({.token = token, .chance = largest * std::exp(static_cast<double>(below))});
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
