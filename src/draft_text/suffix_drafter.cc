// SPDX-License-Identifier: Apache-2.0
//
// SuffixDecoding (arXiv 2411.04975): the longest suffixes of the sequence that occurred
// before, in it or in a corpus, are continued by what followed them, in proportion to how often it did.
// Longer matches draft deeper; of several the one with the highest expected acceptance is proposed.
#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "draft/tree_shape.h"
#include "draft_text/followed_text.h"
#include "draft_text/suffix_automaton.h"
#include "draft_text/suffix_corpus.h"
#include "draft_text/suffix_growth.h"
#include "draft_text/text_drafters.h"

namespace longspec {
namespace {

// Matches tried: shorter ones are more frequent but draft less deep.
constexpr int kMaxSuffixMatches = 8;
constexpr int kMaxCorpusMatches = 4;

class SuffixDrafter final : public Drafter {
 public:
  SuffixDrafter(const SpeculationOptions& options, int width, std::unique_ptr<SuffixCorpus> corpus,
                const HoleTokens& hole)
      : max_context_(options.suffix.max_depth),
        factor_(options.suffix.factor),
        min_prob_(options.suffix.min_prob),
        width_(width),
        corpus_(std::move(corpus)),
        text_(SuffixAutomaton(max_context_), hole) {}

  std::string_view name() const override { return "suffix"; }
  bool uses_dice() const override { return true; }

  Status Follow(std::span<const int32_t> committed) override {
    text_.Assign(committed);
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    if (text_.tokens().size() != committed.size()) text_.Assign(committed);
    best_ = {};
    TryOwnText(budget);
    if (corpus_ != nullptr) TryCorpus(budget);
    AddToTree(best_, tree);
    return {};
  }

  Status Read(const CommittedRows& rows) override {
    text_.Accept(rows.sequence, rows.n_new);
    return {};
  }

  size_t bytes() const override { return text_.bytes() + (corpus_ == nullptr ? 0 : corpus_->bytes()); }

 private:
  void TryOwnText(const DraftBudget& budget) {
    SuffixContext match = text_.index().LongestMatch();
    for (int i = 0; i < kMaxSuffixMatches && match.length > 0; ++i) {
      Try(text_.index(), match, budget);
      match = text_.index().Shorter(match);
    }
  }

  void TryCorpus(const DraftBudget& budget) {
    corpus_->Matches(text_.tokens(), max_context_, kMaxCorpusMatches, matches_);
    for (const SuffixContext& match : matches_) Try(*corpus_, match, budget);
  }

  // Keeps the better draft; the earlier of equals, so the sequence's own before the corpus's and longer
  // matches before shorter ones.
  void Try(const SuffixIndex& index, const SuffixContext& match, const DraftBudget& budget) {
    const double allowed = std::floor(static_cast<double>(match.length) * factor_);
    const int depth = static_cast<int>(std::min<double>(budget.max_depth, allowed));
    // The chances of a level's nodes add up to one at most, so a draft scores no more than its depth.
    if (depth <= 0 || budget.max_nodes <= 0 || best_.score >= depth) return;
    SuffixDraft draft = grower_.Grow(index, match,
                                     {.max_nodes = budget.max_nodes,
                                      .max_depth = depth,
                                      .width = width_,
                                      .min_prob = min_prob_,
                                      .foresight = budget.foresight,
                                      .committed = text_.tokens()});
    if (draft.score > best_.score) best_ = std::move(draft);
  }

  const int max_context_;
  const double factor_;
  const double min_prob_;
  const int width_;
  const std::unique_ptr<SuffixCorpus> corpus_;
  FollowedText<SuffixAutomaton> text_;
  SuffixGrower grower_;
  SuffixDraft best_;
  std::vector<SuffixContext> matches_;
};

constexpr DrafterOption kSuffixOptions[] = {
    {.flags = "--spec-suffix-max-depth",
     .member = At<&SpeculationOptions::suffix, &SuffixDraftOptions::max_depth>,
     .help = "longest suffix told apart",
     .least = 1,
     .most = 64},
    {.flags = "--spec-suffix-factor",
     .member = At<&SpeculationOptions::suffix, &SuffixDraftOptions::factor>,
     .help = "drafted depth per matched token",
     .above_least = true},
    {.flags = "--spec-suffix-min-prob",
     .member = At<&SpeculationOptions::suffix, &SuffixDraftOptions::min_prob>,
     .help = "nodes less likely than this are not drafted",
     .most = 1},
    {.flags = "--spec-corpus",
     .member = At<&SpeculationOptions::suffix, &SuffixDraftOptions::corpus>,
     .help = "a file of 'longspec corpus' to look up as well"},
};

DrafterResult MakeSuffix(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  std::unique_ptr<SuffixCorpus> corpus;
  if (!options.suffix.corpus.empty()) {
    if (context.target == nullptr) return InvalidArgument("--spec-corpus: needs the model it was made for");
    LS_ASSIGN(corpus, SuffixCorpus::Open(options.suffix.corpus, context.target->vocab_size()));
  }
  return std::unique_ptr<Drafter>(
      std::make_unique<SuffixDrafter>(options, width, std::move(corpus), context.hole));
}

}  // namespace

constexpr DrafterEntry kSuffixDrafter = {
    .name = "suffix",
    .summary = "what most often followed the longest suffix that occurred before",
    .options = kSuffixOptions,
    .reads_dice = true,
    .check = CheckTreeWidth,
    .make = MakeSuffix,
    .in_auto = Always,
    .chain_by_default = true,
};

}  // namespace longspec
