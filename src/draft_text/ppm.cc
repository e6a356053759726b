// SPDX-License-Identifier: Apache-2.0
//
// Drafts what the text so far makes likely, by prediction by partial matching (draft_text/ppm.h): nodes
// best first, a node's score being its estimated chance of being reached, until none is likely enough. Where
// suffix asks the one best context, this asks all of them, which makes its scores good enough to be taken at
// their word.
#include "draft_text/ppm.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "draft/tree_shape.h"
#include "draft_text/followed_text.h"
#include "draft_text/priors.h"
#include "draft_text/text_drafters.h"

namespace longspec {

namespace {

// Dice can make a token this much likelier, for all practical purposes.
constexpr double kMostLuck = 8;

class PpmDrafter final : public Drafter, private Adviser {
 public:
  PpmDrafter(double min_prob, int width, std::shared_ptr<const NgramPrior> prior, std::string notice,
             const HoleTokens& hole)
      : min_prob_(min_prob),
        width_(width),
        prior_(prior),
        notice_(std::move(notice)),
        text_(PpmModel(std::move(prior)), hole) {}

  std::string_view name() const override { return "ppm"; }
  bool uses_dice() const override { return true; }

  Status Follow(std::span<const int32_t> committed) override {
    text_.Assign(committed);
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    if (text_.tokens().size() != committed.size()) text_.Assign(committed);
    heap_.clear();
    n_discovered_ = 0;
    text_.index().Current(ContextsOf(0));
    Discover(0, 1, budget, tree);
    while (!heap_.empty() && tree.size() <= budget.max_nodes) {
      std::pop_heap(heap_.begin(), heap_.end(), Worse);
      const Candidate best = heap_.back();
      heap_.pop_back();
      const int node = tree.AddChild(best.parent, best.token, static_cast<float>(best.score));
      PpmModel::Contexts& extended = ContextsOf(node);  // may move the parent's
      text_.index().Extend(ContextsOf(best.parent), best.token, extended);
      Discover(node, best.score, budget, tree);
    }
    return {};
  }

  Status Read(const CommittedRows& rows) override {
    text_.Accept(rows.sequence, rows.n_new);
    return {};
  }

  size_t bytes() const override { return text_.bytes(); }

  Adviser* adviser() override { return this; }

  std::vector<std::pair<std::string, std::string>> uses() const override {
    if (prior_ == nullptr) return {{"prior", "none"}};
    return {{"prior", prior_->path() + ", " + std::to_string(prior_->n_pairs()) + " pairs"}};
  }
  std::string notice() const override { return notice_; }

 private:
  void Advise(std::span<const int32_t> path, double least, std::vector<Guess>& guesses) override {
    text_.index().Current(advised_);
    for (const int32_t token : path) {
      text_.index().Extend(advised_, token, extended_);
      std::swap(advised_, extended_);
    }
    text_.index().Predict(advised_, path.empty(), least, guesses);
  }

  struct Candidate {
    double score;
    int order;  // of discovery: earlier ones first among equals
    int parent;
    int32_t token;
  };
  static bool Worse(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.order > b.order;
  }

  PpmModel::Contexts& ContextsOf(int node) {
    const auto index = static_cast<size_t>(node);
    if (contexts_.size() <= index) contexts_.resize(index + 1);
    return contexts_[index];
  }

  // What may follow a node of the tree.
  void Discover(int node, double score, const DraftBudget& budget, const TokenTree& tree) {
    const int depth = tree.node(node).depth;
    if (depth >= budget.max_depth) return;
    const double least = min_prob_ / score;
    const double rest = text_.index().Predict(
        ContextsOf(node), depth == 0, budget.foresight.has_dice() ? least / kMostLuck : least, guesses_);
    path_.resize(static_cast<size_t>(depth));
    for (int at = node; at > 0; at = tree.node(at).parent) {
      path_[static_cast<size_t>(tree.node(at).depth) - 1] = tree.node(at).token;
    }
    budget.foresight.Refine(kDiceOfCounts, {.committed = text_.tokens(), .drafted = path_}, rest, guesses_);
    int n = 0;
    for (const Guess& guess : guesses_) {
      if (n++ == width_ || guess.chance < least) break;
      heap_.push_back(
          {.score = score * guess.chance, .order = n_discovered_++, .parent = node, .token = guess.token});
      std::push_heap(heap_.begin(), heap_.end(), Worse);
    }
  }

  const double min_prob_;
  const int width_;
  const std::shared_ptr<const NgramPrior> prior_;  // null: none
  const std::string notice_;
  FollowedText<PpmModel> text_;
  std::vector<PpmModel::Contexts> contexts_;  // by node of the tree
  PpmModel::Contexts advised_, extended_;
  std::vector<Guess> guesses_;
  std::vector<int32_t> path_;
  std::vector<Candidate> heap_;
  int n_discovered_ = 0;
};

// "" is as wide as there are likely tokens.
Result<int> PpmWidth(const std::string& tree) {
  constexpr int kAll = 64;
  return tree.empty() ? Result<int>(kAll) : ParseTreeWidth(tree);
}

constexpr DrafterOption kPpmOptions[] = {
    {.flags = "--spec-ppm-min-prob",
     .member = At<&SpeculationOptions::ppm, &PpmDraftOptions::min_prob>,
     .help = "nodes less likely than this are not drafted",
     .most = 1,
     .above_least = true},
    {.flags = "--spec-prior",
     .member = At<&SpeculationOptions::ppm, &PpmDraftOptions::prior>,
     .help =
         "a file of 'longspec corpus --ngrams' with what usually follows in other texts, or none (default: "
         "the one in the folder priors beside the model that fits it)"},
};

Status CheckPpm(const SpeculationOptions& options) { return PpmWidth(options.tree).status(); }

DrafterResult MakePpm(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(const int width, PpmWidth(options.tree));
  LS_ASSIGN(std::shared_ptr<const NgramPrior> prior, context.priors->Get(options.ppm.prior));
  return std::unique_ptr<Drafter>(std::make_unique<PpmDrafter>(
      static_cast<double>(options.ppm.min_prob), width, std::move(prior),
      options.ppm.prior.empty() ? context.priors->problem() : std::string(), context.hole));
}

}  // namespace

constexpr DrafterEntry kPpmDrafter = {
    .name = "ppm",
    .summary = "what the text so far makes likely, all suffixes considered together",
    .options = kPpmOptions,
    .reads_dice = true,
    .check = CheckPpm,
    .make = MakePpm,
    .in_auto = Always,
};

namespace {

// Of a context, the others are too rare to be drafted.
constexpr int kMostContinuations = 8;
// Shorter contexts that could add no more than this part of the least chance that is asked for are not asked.
constexpr double kNegligibleShare = 0.1;

double Power(double x, int n) {
  double product = 1;
  for (int i = 0; i < n; ++i) product *= x;
  return product;
}

}  // namespace

void PpmModel::Append(int32_t token) {
  text_.Append(token);
  const auto index = static_cast<size_t>(token);
  if (last_.size() <= index) last_.resize(index + 1, kNever);
  last_[index] = text_.size();
  if (prior_ != nullptr) prior_->Extend(prior_at_end_, token, prior_at_end_);
}

void PpmModel::Clear() {
  text_.Clear();
  last_.clear();
  if (prior_ != nullptr) prior_->Start({}, prior_at_end_);
}

void PpmModel::Current(Contexts& contexts) const {
  contexts.text.clear();
  contexts.text.push_back(text_.LongestMatch());
  while (contexts.text.back().length > 0) contexts.text.push_back(text_.Shorter(contexts.text.back()));
  contexts.prior = prior_at_end_;
}

void PpmModel::Extend(const Contexts& contexts, int32_t token, Contexts& extended) const {
  extended.text.clear();
  for (const SuffixContext& context : contexts.text) {
    SuffixContext longer;
    if (!text_.Extend(context, token, &longer)) continue;
    if (extended.text.empty() || extended.text.back().first != longer.first) extended.text.push_back(longer);
  }
  extended.text.push_back({});
  if (prior_ != nullptr) prior_->Extend(contexts.prior, token, extended.prior);
}

double PpmModel::Recency(int32_t token) const {
  const auto index = static_cast<size_t>(token);
  if (index >= last_.size() || last_[index] == kNever) return 1;
  const int64_t ago = text_.size() - last_[index];
  return ago < kRecent ? 4 : ago < kNotLongAgo ? 2 : 1;
}

// Among the tokens that are thought of; what is left to others stays as it is.
void PpmModel::PreferRecent(std::vector<Guess>& guesses) const {
  double before = 0, after = 0;
  for (Guess& guess : guesses) {
    before += guess.chance;
    after += guess.chance *= Recency(guess.token);
  }
  for (Guess& guess : guesses) guess.chance *= before / after;
}

// Longest context first: `unsaid` is what it and those before it leave to the shorter ones. A context of the
// text stands for all suffixes of it that are longer than the next one: as many steps of the recursion with
// the same counts.
double PpmModel::Predict(const Contexts& contexts, bool at_end, double least, std::vector<Guess>& out) const {
  out.clear();
  double unsaid = 1;
  const auto say = [&](int32_t token, double chance) {
    const auto known = std::ranges::find(out, token, &Guess::token);
    if (known != out.end()) {
      known->chance += chance;
    } else {
      out.push_back({.token = token, .chance = chance});
    }
  };
  const std::vector<SuffixContext>& text = contexts.text;
  for (size_t i = 0; i + 1 < text.size() && unsaid > kNegligibleShare * least; ++i) {
    const SuffixContext& context = text[i];
    const int64_t count = text_.Count(context);
    const int64_t followed = count - (at_end ? 1 : 0);
    if (followed <= 0) continue;
    const auto n = static_cast<double>(followed);
    const int shorter = text[i + 1].length;
    double kept = Power(kDoubt / (n + kDoubt), context.length - std::max(shorter, 1));
    if (shorter == 0) kept *= doubt_of_one_ / (n + doubt_of_one_);
    text_.Continuations(context, kMostContinuations, continuations_);
    for (const Continuation& c : continuations_) {
      say(c.token, unsaid * (1 - kept) * c.share * static_cast<double>(count) / n);
    }
    unsaid *= kept;
  }
  for (int k = prior_ != nullptr ? prior_->order() : 0; k > 0 && unsaid > kNegligibleShare * least; --k) {
    const int32_t node = contexts.prior.node[static_cast<size_t>(k)];
    if (node == NgramPrior::kUnknown) continue;
    const double n = static_cast<double>(prior_->Count(node)) + kDoubt;
    prior_->ForSuccessors(
        node, [&](int32_t token, int64_t count) { say(token, unsaid * static_cast<double>(count) / n); });
    unsaid *= kDoubt / n;
  }
  PreferRecent(out);
  double said = 0;
  std::erase_if(out, [&](const Guess& p) {
    if (p.chance >= least) said += p.chance;
    return p.chance < least;
  });
  return std::max(0.0, 1 - said);
}

}  // namespace longspec
