// SPDX-License-Identifier: Apache-2.0
//
// MagicDec (arXiv 2408.11049; research: 3.2): the target drafts for itself, the likeliest tokens, with a
// cache of its first and last positions only. Keys and values of committed positions are copied from the
// sequence's own cache, so no prefill is needed, and none of the catching up that a draft's own would. Each
// drafted level costs a forward pass over that small cache: worth it where reading the whole cache is most of
// a step.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/registry.h"
#include "draft/top_logits.h"
#include "draft/tree_width.h"
#include "kv/streaming_cache.h"
#include "model/shared_parts.h"

namespace longspec {
namespace {

constexpr DiceModel kDice = {.belief = 1, .dice = 0.8, .other = 0, .missing = 0.05};

class MagicDecDrafter final : public Drafter {
 public:
  MagicDecDrafter(const DraftContext& context, int width, std::unique_ptr<StreamingCache> recent)
      : target_(*context.target), cache_(*context.cache), width_(width), recent_(std::move(recent)) {}

  std::string_view name() const override { return "magicdec"; }
  bool uses_dice() const override { return true; }

  Status Follow(std::span<const int32_t>) override {
    recent_->Truncate(0);
    return {};
  }

  // A level is the likeliest tokens after its first node, which alone is drafted on.
  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    LS_CHECK(cache_.length() + 1 == static_cast<int>(committed.size()));
    LS_TRY(recent_->Follow(cache_));
    int tip = 0;
    while (tree.node(tip).depth < budget.max_depth && tree.size() - 1 < budget.max_nodes) {
      const int room = budget.max_nodes - (tree.size() - 1);
      LS_ASSIGN(const int next, DraftLevel(tip, std::min(width_, room), budget.foresight, committed, tree));
      if (next < 0) break;
      tip = next;
    }
    return {};
  }

  // What the round committed is copied from the sequence's cache when it is next needed.
  Status Read(const CommittedRows&) override { return {}; }

  size_t bytes() const override { return recent_->bytes(); }

 private:
  // Adds up to `width` children of `tip`; returns the likeliest one, -1 if the target knows none.
  Result<int> DraftLevel(int tip, int width, const Foresight& foresight, std::span<const int32_t> committed,
                         TokenTree& tree) {
    LS_ASSIGN(KvTransaction row, recent_->Begin(1));
    const int32_t token = tree.node(tip).token;
    const ForwardSegment segment = {
        .tokens = {&token, 1}, .parents = {}, .kv = &row, .logits = LogitsFor::kLastRow};
    LS_ASSIGN(const TargetOutput output, target_.Forward({&segment, 1}));
    row.CommitAll();
    Guesses(std::span(output.segments[0].logits, static_cast<size_t>(output.vocab)),
            foresight.has_dice() ? kMaxTopLogits : width);
    path_.clear();
    for (const int32_t at : tree.PathTo(tip)) path_.push_back(tree.node(at).token);
    foresight.RefineDistribution(kDice, {.committed = committed, .drafted = std::span(path_).subspan(1)},
                                 rest_, guesses_);
    if (std::ssize(guesses_) > width) guesses_.resize(static_cast<size_t>(width));
    int first = -1;
    for (const Guess& guess : guesses_) {
      const double score = static_cast<double>(tree.node(tip).score) * guess.chance;
      const int node = tree.AddChild(tip, guess.token, static_cast<float>(score));
      if (first < 0) first = node;
    }
    return first;
  }

  // The likeliest tokens and their shares to guesses_, what is left to rest_.
  void Guesses(std::span<const float> logits, int most) {
    best_.resize(static_cast<size_t>(most));
    const int n = TopLogits(logits, best_);
    guesses_.clear();
    rest_ = 1;
    if (n == 0) return;
    const auto first = static_cast<size_t>(best_[0]);
    if (!std::isfinite(logits[first])) return;
    const auto largest = static_cast<double>(ShareOfLargest(logits, best_[0]));
    for (const int32_t token : std::span(best_).first(static_cast<size_t>(n))) {
      const float below = logits[static_cast<size_t>(token)] - logits[first];
      guesses_.push_back({.token = token, .chance = largest * std::exp(static_cast<double>(below))});
      rest_ = std::max(0.0, rest_ - guesses_.back().chance);
    }
  }

  Target& target_;
  const KvCache& cache_;  // the sequence's
  const int width_;
  const std::unique_ptr<StreamingCache> recent_;
  std::vector<int32_t> best_, path_;
  std::vector<Guess> guesses_;
  double rest_ = 1;
};

constexpr int kMaxWindow = 1 << 24;
constexpr DrafterOption kMagicDecOptions[] = {
    {.flags = "--spec-magicdec-sink",
     .member = &SpeculationOptions::magicdec_sink,
     .help = "first positions the draft sees",
     .most = kMaxWindow},
    {.flags = "--spec-magicdec-window",
     .member = &SpeculationOptions::magicdec_window,
     .help = "and last ones",
     .least = 1,
     .most = kMaxWindow},
};

Status CheckMagicDec(const SpeculationOptions& options) { return ParseTreeWidth(options.tree).status(); }

DrafterResult MakeMagicDec(const SpeculationOptions& options, const DraftContext& context) {
  if (context.target == nullptr || context.cache == nullptr) {
    return InvalidArgument("--spec-type magicdec: needs a target and the sequence's cache");
  }
  const SharedParts* parts = context.target->shared_parts();
  if (parts == nullptr || context.cache->exactness() != Exactness::kLossless) {
    return Unsupported(
        "--spec-type magicdec: needs a target of known shape and a cache of all its positions");
  }
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  const int n_layer = parts->config->n_layer;
  return std::unique_ptr<Drafter>(
      std::make_unique<MagicDecDrafter>(context, width,
                                        MakeStreamingCache(context.cache->Span(0).layout, n_layer,
                                                           options.magicdec_sink, options.magicdec_window)));
}

void HalveTheText(SpeculationOptions& options, int n_tokens) {
  options.magicdec_window = std::clamp(n_tokens / 2, 1, options.magicdec_window);
}

}  // namespace

constexpr DrafterEntry kMagicDecDrafter = {
    .name = "magicdec",
    .aliases = {"streaming", "self_streaming"},
    .summary = "what the model says of the first and last positions alone",
    .options = kMagicDecOptions,
    .check = CheckMagicDec,
    .make = MakeMagicDec,
    .chain_by_default = true,
    .narrow = HalveTheText,
};

}  // namespace longspec
