// SPDX-License-Identifier: Apache-2.0
#include "playback.h"

#include <memory>
#include <span>

#include "base/check.h"
#include "draft/drafter.h"
#include "draft_model/registry.h"

namespace longspec::testing {
namespace {

// About what they take beside the model of the recordings.
constexpr double kVerifyMs = 0.06;                             // a token
double DraftMs(int context) { return 0.02 + 8e-6 * context; }  // a proposal
constexpr int kVocabulary = 1 << 20;                           // of no consequence here
constexpr int kRoom = 1 << 20;                                 // positions
constexpr HoleTokens kHole = {.prefix = 151659, .suffix = 151661, .middle = 151660};  // Qwen2.5-Coder's

// What verifying a tree would have accepted: the path along which it says what the text says.
Accepted Verdict(const TokenTree& tree, std::span<const int32_t> text) {
  Accepted accepted{.nodes = {0}, .tokens = {text.front()}};
  while (accepted.tokens.size() < text.size()) {
    int32_t child = tree.node(accepted.nodes.back()).first_child;
    while (child >= 0 && tree.node(child).token != accepted.tokens.back())
      child = tree.node(child).next_sibling;
    if (child < 0) break;
    accepted.nodes.push_back(child);
    accepted.tokens.push_back(text[accepted.tokens.size()]);
  }
  return accepted;
}

}  // namespace

Played Play(const Recording& recording, const SpeculationOptions& options, const CostModel& machine,
            AdaptiveMemory* memory, DraftModels* models) {
  auto made = MakeDrafter(options, {.models = models, .hole = kHole});
  LS_CHECK(made.ok());
  Drafter& drafter = **made;
  const auto sampler = Sampler::Create(recording.sampling, kVocabulary);
  LS_CHECK(sampler.ok());
  const std::string key =
      AcceptanceKey(drafter, options.dice && drafter.uses_dice() && !sampler->is_greedy());
  const std::unique_ptr<Policy> policy =
      WantsAdaptivePolicy(options) ? MakeAdaptivePolicy(options, key, memory) : MakeFixedPolicy(options);
  Played played;
  std::vector<int32_t> committed = recording.prompt;
  std::span<const int32_t> left = recording.answer;
  LS_CHECK(drafter.Follow(committed).ok());
  while (!left.empty()) {
    const auto context = static_cast<int>(committed.size());
    const auto most = static_cast<int>(left.size());
    DraftBudget budget = policy->Budget({.context = context, .room = kRoom, .max_tokens = most});
    TokenTree tree(committed.back());
    const bool asked = budget.max_nodes > 0 && budget.max_depth > 0;
    if (asked) {
      budget.foresight = Foresight(&*sampler, options.dice);
      LS_CHECK(drafter.Propose(budget, committed, tree).ok());
      tree = policy->Choose(std::move(tree));
    }
    const Accepted accepted = Verdict(tree, left);
    const size_t n = accepted.tokens.size();
    const double draft_ms = asked ? DraftMs(context) : 0.0;
    const double target_ms = machine.TargetMs(tree.size(), context);
    const double verify_ms = kVerifyMs * static_cast<double>(n);
    policy->Observe({.tree = tree,
                     .accepted = accepted,
                     .context = context,
                     .asked = asked,
                     .draft_ms = draft_ms,
                     .target_ms = target_ms,
                     .verify_ms = verify_ms});
    played.ms += draft_ms + target_ms + verify_ms;
    for (size_t i = 0; i < n; ++i) {
      played.plain_ms += machine.TargetMs(1, context + static_cast<int>(i)) + kVerifyMs;
    }
    ++played.rounds;
    played.drafted += tree.size() - 1;
    played.accepted += static_cast<int64_t>(n) - 1;
    committed.insert(committed.end(), accepted.tokens.begin(), accepted.tokens.end());
    left = left.subspan(n);
    LS_CHECK(drafter.Read({.sequence = committed, .n_new = static_cast<int>(n), .tree = &tree}).ok());
  }
  return played;
}

}  // namespace longspec::testing
