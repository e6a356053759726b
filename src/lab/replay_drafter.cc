// SPDX-License-Identifier: Apache-2.0
//
// Proposes tokens it was given, by output index: a test tool that forces any pattern of acceptance. As a
// tree, every level also holds wrong siblings, added before the right child, so that node order differs from
// path order.
//
// Or it plays a draft model that is not there yet: right with a chance that was set, at a price that was set,
// so that what a better draft would be worth can be measured before one is trained.
#include "lab/replay_drafter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "base/status_macros.h"
#include "draft/tree_shape.h"

namespace longspec {
namespace {

const ReplayOptions& ReplayOf(const SpeculationOptions& options) {
  static const ReplayOptions kDefaults;
  const ReplayOptions* const added = options.added.Get<ReplayOptions>();
  return added == nullptr ? kDefaults : *added;
}

// A wrong guess instead of `right`: the token k below it, or above where there is none, so that it stays
// inside the vocabulary.
int32_t Decoy(int32_t right, int k) { return right >= k ? right - k : right + k; }

// Plays a draft whose every guess is right with the same chance. Which ones are depends on their place in the
// output alone.
class PlayedDrafter final : public Drafter {
 public:
  PlayedDrafter(std::vector<int32_t> tokens, double accept, double step_ms)
      : tokens_(std::move(tokens)), accept_(accept), step_ms_(step_ms) {}

  std::string_view name() const override { return "replay"; }
  bool pays_by_level() const override { return true; }

  Status Follow(std::span<const int32_t> committed) override {
    prompt_length_ = committed.size();
    return {};
  }

  // After a wrong guess it goes on, as a draft does, which cannot know.
  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    const double start = NowMs();
    const size_t first = committed.size() - prompt_length_;
    double reach = 1;
    bool on_path = true;
    int n = 0;
    for (size_t i = first; i < tokens_.size() && n < std::min(budget.max_nodes, budget.max_depth); ++i) {
      on_path = on_path && rng_.Uniform(i) < accept_;
      reach *= accept_;
      ++n;
      tree.AddChild(n - 1, on_path ? tokens_[i] : Decoy(tokens_[i], 1), static_cast<float>(reach));
    }
    SpendMs(n * step_ms_ - (NowMs() - start));
    return {};
  }

  Status Read(const CommittedRows&) override { return {}; }
  size_t bytes() const override { return tokens_.capacity() * sizeof(int32_t); }

 private:
  const std::vector<int32_t> tokens_;
  const double accept_, step_ms_;
  const RngStream rng_ = {.seed = 1, .sequence = 0, .purpose = RngPurpose::kTest};
  size_t prompt_length_ = 0;
};

class ReplayDrafter final : public Drafter {
 public:
  ReplayDrafter(std::vector<int32_t> tokens, int width) : tokens_(std::move(tokens)), n_decoy_(width - 1) {}

  std::string_view name() const override { return "replay"; }

  Status Follow(std::span<const int32_t> committed) override {
    prompt_length_ = committed.size();
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    int room = budget.max_nodes;
    int parent = 0;
    const size_t first = committed.size() - prompt_length_;
    for (size_t i = first; i < tokens_.size() && room > 0 && tree.node(parent).depth < budget.max_depth;
         ++i) {
      const int n_decoy = std::min(n_decoy_, room - 1);
      for (int k = 1; k <= n_decoy; ++k) tree.AddChild(parent, Decoy(tokens_[i], k));
      parent = tree.AddChild(parent, tokens_[i]);
      room -= n_decoy + 1;
    }
    return {};
  }

  Status Read(const CommittedRows&) override { return {}; }
  size_t bytes() const override { return tokens_.capacity() * sizeof(int32_t); }

 private:
  std::vector<int32_t> tokens_;
  int n_decoy_;
  size_t prompt_length_ = 0;
};

constexpr float kMostStepMs = 1000;

Status CheckReplay(const SpeculationOptions& options) {
  LS_TRY(CheckTreeWidth(options));
  const auto& [tokens, accept, step_ms] = ReplayOf(options);
  if (std::ranges::any_of(tokens, [](int32_t t) { return t < 0; })) {
    return InvalidArgument("replay_tokens: tokens must be 0 or more");
  }
  if (!(accept > 0 && accept <= 1)) {
    return InvalidArgument("replay_accept " + std::to_string(accept) + ": must be above 0 and at most 1");
  }
  if (!(step_ms >= 0 && step_ms <= kMostStepMs)) {
    return InvalidArgument("replay_step_ms " + std::to_string(step_ms) + ": must be from 0 to 1000");
  }
  return {};
}

DrafterResult MakeReplay(const SpeculationOptions& options, const DraftContext&) {
  const auto& [tokens, accept, step_ms] = ReplayOf(options);
  if (accept < 1 || step_ms > 0) {
    return std::unique_ptr<Drafter>(
        std::make_unique<PlayedDrafter>(tokens, static_cast<double>(accept), static_cast<double>(step_ms)));
  }
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  return std::unique_ptr<Drafter>(std::make_unique<ReplayDrafter>(tokens, width));
}

}  // namespace

constexpr DrafterEntry kReplayDrafter = {
    .name = "replay",
    .summary = "tokens that a program gives it, for tests",
    .check = CheckReplay,
    .make = MakeReplay,
    .chain_by_default = true,
};

}  // namespace longspec
