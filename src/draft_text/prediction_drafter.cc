// SPDX-License-Identifier: Apache-2.0
//
// Predicted outputs: texts that the caller believes the answer to be made of, such as the file that is to be
// edited, or to begin with, such as the rest of a name that is half written. What is written is followed
// through them (draft_text/copies.h), and where several places of them are likely, all are in the tree.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "draft/tree_shape.h"
#include "draft_text/copies.h"
#include "draft_text/text_drafters.h"

namespace longspec {
namespace {

constexpr double kMinProb = 0.05;

class PredictionDrafter final : public Drafter {
 public:
  PredictionDrafter(const PredictionDraftOptions& options, int width)
      : width_(width), fills_(options.tokens.empty()) {
    copies_.AddWhole(options.tokens);
    for (const LikelyBeginning& beginning : options.beginnings)
      copies_.AddBeginning(beginning.tokens, static_cast<double>(beginning.chance));
  }

  std::string_view name() const override { return "prediction"; }
  bool uses_dice() const override { return true; }

  Status Follow(std::span<const int32_t> committed) override {
    prompt_length_ = committed.size();
    copies_.Restart();
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    copies_.Follow(committed.subspan(std::min(prompt_length_, committed.size())));
    heap_.clear();
    n_discovered_ = 0;
    Discover({.score = 1, .places = copies_.places()}, 0, budget, committed, tree);
    while (!heap_.empty() && tree.size() <= budget.max_nodes) {
      std::pop_heap(heap_.begin(), heap_.end(), Worse);
      const Candidate best = std::move(heap_.back());
      heap_.pop_back();
      const int node = tree.AddChild(best.parent, best.token, static_cast<float>(best.score));
      Discover(best, node, budget, committed, tree);
    }
    return {};
  }

  Status Read(const CommittedRows&) override { return {}; }
  size_t bytes() const override { return copies_.bytes(); }

  // How much to believe a text that is written again says nothing of beginnings: it is learned apart.
  std::vector<std::pair<std::string, std::string>> uses() const override {
    return {{"prediction", fills_ ? "what an answer may begin with" : "a text"}};
  }

 private:
  struct Candidate {
    double score = 0;
    int order = 0;  // of discovery: earlier ones first among equals
    int parent = 0;
    int32_t token = 0;
    std::vector<Copy> places = {};  // behind it
  };
  static bool Worse(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.order > b.order;
  }

  // What may follow a node of the tree: what stands at the places where the answer is then.
  void Discover(const Candidate& at, int node, const DraftBudget& budget, std::span<const int32_t> committed,
                const TokenTree& tree) {
    const int depth = tree.node(node).depth;
    if (depth >= budget.max_depth) return;
    guesses_.clear();
    double rest = 1;
    for (const Copy& place : at.places) {
      const int32_t token = copies_.TokenAt(place.text, place.at);
      if (token < 0) continue;
      const double chance = place.weight * ChanceOfNext(place.run);
      rest -= chance;
      const auto known = std::ranges::find(guesses_, token, &Guess::token);
      if (known == guesses_.end()) {
        guesses_.push_back({.token = token, .chance = chance});
      } else {
        known->chance += chance;
      }
    }
    path_.resize(static_cast<size_t>(depth));
    for (int up = node; up > 0; up = tree.node(up).parent)
      path_[static_cast<size_t>(tree.node(up).depth) - 1] = tree.node(up).token;
    budget.foresight.Refine(kDiceOfCounts, {.committed = committed, .drafted = path_}, std::max(rest, 0.0),
                            guesses_);
    std::ranges::stable_sort(guesses_, std::greater(), &Guess::chance);
    for (size_t i = 0; i < std::min(guesses_.size(), static_cast<size_t>(width_)); ++i) {
      const double score = at.score * guesses_[i].chance;
      if (score < kMinProb) break;
      heap_.push_back({.score = score,
                       .order = n_discovered_++,
                       .parent = node,
                       .token = guesses_[i].token,
                       .places = Behind(at.places, guesses_[i].token)});
      std::push_heap(heap_.begin(), heap_.end(), Worse);
    }
  }

  std::vector<Copy> Behind(std::span<const Copy> places, int32_t token) const {
    std::vector<Copy> behind;
    double sum = 0;
    for (Copy place : places) {
      if (copies_.TokenAt(place.text, place.at) != token) continue;
      place.weight *= ChanceOfNext(place.run);
      sum += place.weight;
      ++place.at;
      ++place.run;
      behind.push_back(place);
    }
    for (Copy& place : behind) place.weight /= sum;
    return behind;
  }

  const int width_;
  const bool fills_;
  Copies copies_;
  size_t prompt_length_ = 0;
  std::vector<Candidate> heap_;
  std::vector<Guess> guesses_;
  std::vector<int32_t> path_;
  int n_discovered_ = 0;
};

// "" is as wide as there are likely places.
Result<int> PredictionWidth(const std::string& tree) {
  constexpr int kAll = 64;
  return tree.empty() ? Result<int>(kAll) : ParseTreeWidth(tree);
}

Status CheckPrediction(const SpeculationOptions& options) {
  LS_TRY(PredictionWidth(options.tree).status());
  const auto is_bad = [](const std::vector<int32_t>& tokens) {
    return std::ranges::any_of(tokens, [](int32_t token) { return token < 0; });
  };
  if (is_bad(options.prediction.tokens) ||
      std::ranges::any_of(options.prediction.beginnings, is_bad, &LikelyBeginning::tokens))
    return InvalidArgument("prediction_tokens: tokens must be 0 or more");
  return {};
}

DrafterResult MakePrediction(const SpeculationOptions& options, const DraftContext&) {
  LS_ASSIGN(const int width, PredictionWidth(options.tree));
  return std::unique_ptr<Drafter>(std::make_unique<PredictionDrafter>(options.prediction, width));
}

}  // namespace

constexpr DrafterEntry kPredictionDrafter = {
    .name = "prediction",
    .summary = "a text that a request says the answer may be made of (longspec serve)",
    .reads_dice = true,
    .check = CheckPrediction,
    .make = MakePrediction,
    .in_auto =
        [](const SpeculationOptions& options) {
          return !options.prediction.tokens.empty() || !options.prediction.beginnings.empty();
        },
};

}  // namespace longspec
