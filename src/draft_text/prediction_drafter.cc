// SPDX-License-Identifier: Apache-2.0
//
// Predicted outputs: a text that the caller believes the answer to be made of, such as the file that is to be
// edited. What is written follows it from its beginning; where it leaves the text, the longest suffix of the
// answer that occurs in the text says where it goes on (arXiv 2411.04975 looks up suffixes in the same way).
#include <algorithm>

#include "base/status_macros.h"
#include "draft/tree_shape.h"
#include "draft_text/suffix_corpus.h"
#include "draft_text/suffix_growth.h"
#include "draft_text/text_drafters.h"

namespace longspec {
namespace {

constexpr int kMaxContext = 64;  // longest suffix that is looked up
constexpr int kMaxPredictionMatches = 4;
constexpr int kDepthPerToken = 8;  // of a match: the text is meant for this answer, so little is proof enough
constexpr double kMinProb = 0.1;
constexpr float kFirstScore = 0.8F;  // of the text's first token, and of each that follows the one before

class PredictionDrafter final : public Drafter {
 public:
  PredictionDrafter(std::vector<int32_t> tokens, int width)
      : width_(width), beginning_(tokens), text_(SuffixCorpus::Make(std::move(tokens))) {}

  std::string_view name() const override { return "prediction"; }
  bool uses_dice() const override { return true; }

  Status Follow(std::span<const int32_t> committed) override {
    prompt_length_ = committed.size();
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    const auto answer = committed.subspan(std::min(prompt_length_, committed.size()));
    if (answer.empty()) {
      ProposeBeginning(budget, tree);
    } else {
      ProposeContinuation(budget, committed, answer, tree);
    }
    return {};
  }

  Status Read(const CommittedRows&) override { return {}; }
  size_t bytes() const override { return text_->bytes() + beginning_.capacity() * sizeof(int32_t); }

 private:
  void ProposeBeginning(const DraftBudget& budget, TokenTree& tree) const {
    const auto most = static_cast<size_t>(std::max(0, std::min(budget.max_nodes, budget.max_depth)));
    int parent = 0;
    float score = 1;
    for (size_t i = 0; i < std::min(most, beginning_.size()); ++i) {
      score *= kFirstScore;
      parent = tree.AddChild(parent, beginning_[i], score);
    }
  }

  void ProposeContinuation(const DraftBudget& budget, std::span<const int32_t> committed,
                           std::span<const int32_t> answer, TokenTree& tree) {
    text_->Matches(answer, kMaxContext, kMaxPredictionMatches, matches_);
    SuffixDraft best;
    for (const SuffixContext& match : matches_) {
      const int depth = std::min(budget.max_depth, match.length * kDepthPerToken);
      if (depth <= 0 || best.score >= depth) continue;
      SuffixDraft draft = grower_.Grow(*text_, match,
                                       {.max_nodes = budget.max_nodes,
                                        .max_depth = depth,
                                        .width = width_,
                                        .min_prob = kMinProb,
                                        .foresight = budget.foresight,
                                        .committed = committed});
      if (draft.score > best.score) best = std::move(draft);
    }
    AddToTree(best, tree);
  }

  const int width_;
  const std::vector<int32_t> beginning_;
  const std::unique_ptr<SuffixCorpus> text_;
  size_t prompt_length_ = 0;
  SuffixGrower grower_;
  std::vector<SuffixContext> matches_;
};

Status CheckPrediction(const SpeculationOptions& options) {
  LS_TRY(CheckTreeWidth(options));
  if (std::ranges::any_of(options.prediction.tokens, [](int32_t token) { return token < 0; }))
    return InvalidArgument("prediction_tokens: tokens must be 0 or more");
  return {};
}

DrafterResult MakePrediction(const SpeculationOptions& options, const DraftContext&) {
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  return std::unique_ptr<Drafter>(std::make_unique<PredictionDrafter>(options.prediction.tokens, width));
}

}  // namespace

constexpr DrafterEntry kPredictionDrafter = {
    .name = "prediction",
    .summary = "a text that a request says the answer may be made of (longspec serve)",
    .reads_dice = true,
    .check = CheckPrediction,
    .make = MakePrediction,
    .in_auto = [](const SpeculationOptions& options) { return !options.prediction.tokens.empty(); },
    .chain_by_default = true,
};

}  // namespace longspec
