// SPDX-License-Identifier: Apache-2.0
//
// How much to speculate in the next round, from what is known before it: promises (the chances of guesses),
// prices (of rows, of asking a drafter) and what was accepted. Whatever it decides and however it measures
// time, it cannot change what is committed: that is the target's choice, which no tree changes. A policy sees
// one sequence's rounds in order. Not thread-safe.
//
// Why so many tokens were guessed in a round, or none, these files say, in the order in which they are asked:
//   policy/pass_policy.h        whether anybody guesses, where several sequences share the pass
//   policy/adaptive_policy.cc,  whether this sequence does, and how many nodes and levels its drafter is
//   policy/fixed_policy.cc      asked for; of a single sequence also how many nodes are verified
//   policy/asking.h             which members of a portfolio are asked, and how deep
//   policy/share_speculation.h  how many nodes of each sequence are verified, where several share the pass
// and these what they go by:
//   policy/cost_model.h, policy/pass_cost.h             what rows take
//   policy/draft_time.h                                 what asking a drafter takes
//   policy/acceptance_table.h, policy/level_chances.h   what guesses promise
//   policy/speed_trial.h                                whether all of it came true
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "policy/acceptance_table.h"
#include "policy/asking.h"
#include "policy/cost_model.h"
#include "policy/draft_time.h"
#include "policy/share_speculation.h"
#include "policy/speed_trial.h"
#include "verify/verify.h"

namespace longspec {

// Speculation must promise at least so many times the speed of plain rounds to be worth the doubt.
inline constexpr double kLeastPromise = 1.03;

// Nodes that a draft model is asked about beside an adviser, whose word costs nothing, are reached at least
// so often. A row of a language model of four layers takes a thirtieth of a plain step, and ten rows instead
// of two take it three times as long.
inline constexpr double kLeastChance = 0.15;

struct PolicyInput {
  int context = 0;      // committed tokens
  int room = 0;         // positions left in the cache, the root's included
  int max_tokens = 0;   // tokens the round may commit
  double token_ms = 0;  // what a token takes at the present speed, whoever gets it; 0: unknown
};

// What a finished round did and took.
struct RoundResult {
  const TokenTree& tree;  // as verified
  const Accepted& accepted;
  int context = 0;     // committed tokens before it
  bool asked = false;  // the drafter was asked for a proposal
  bool alone = true;   // the pass had no other rows: what it took says what the tree's rows cost
  double draft_ms = 0, target_ms = 0, verify_ms = 0;
};

// What a policy did and why, in words.
struct PolicyReport {
  std::string policy;  // "fixed", "adaptive"
  std::string
      last_decision;  // "off: 8 rows cost 3.1x at 7.4K keys, expected 1.9 tokens"; empty before the first
  std::vector<std::pair<std::string, int64_t>> decisions;  // rounds by decision
};

class Policy {
 public:
  virtual ~Policy() = default;
  // What the drafter may propose. max_nodes 0: it is not asked.
  virtual DraftBudget Budget(const PolicyInput& input) = 0;
  // Called instead of Budget in a round in which the drafter is not asked, whatever the policy would say.
  virtual void SitOut(const PolicyInput&) {}
  // Has the drafter propose within that budget; of a portfolio those members that are worth their time. All
  // is borrowed until the task ends.
  virtual DraftTask Draft(Drafter& drafter, const DraftBudget& budget, std::span<const int32_t> committed,
                          TokenTree& tree, PassMeeting& meeting) {
    return drafter.Draft(budget, committed, tree, meeting);
  }
  // The part of the proposal that is worth verifying; the root alone is plain decoding.
  virtual TokenTree Choose(TokenTree proposed) = 0;
  // Where several sequences share a pass, how much of each proposal is verified is decided for all of them
  // (policy/share_speculation.h), and Value and Take stand in the place of Choose. Value says what the
  // proposal promises, in views that are valid until the next call; nothing: Choose decides all the same.
  virtual std::optional<SpeculationCandidates> Value(const TokenTree&) { return std::nullopt; }
  // The n best nodes of the proposal that was valued last.
  virtual TokenTree Take(TokenTree proposed, int) { return proposed; }
  virtual void Observe(const RoundResult& round) = 0;
  virtual PolicyReport report() const = 0;
};

// Always the budget of the options (draft_n_max nodes), cut to what the cache and the token limit leave room
// for.
std::unique_ptr<Policy> MakeFixedPolicy(const SpeculationOptions& options);

// What is known of a drafter, from all generations that it drafted for.
struct DrafterMemory {
  AcceptanceTable acceptance;
  AskingGain asking = {};  // of a portfolio: its members that take time
  DraftTime draft_time;    // of a proposal
  SpeedTrial trial;        // of its rounds, one answer's after another's
  int in_flight = 0;       // generations that use it now
  int64_t last_used = 0;   // AdaptiveMemory::n_policies then
};

// What adaptive policies have learned and the next one goes on with: it outlives generations, not the
// machine. Policies borrow it.
struct AdaptiveMemory {
  CostModel costs;
  PlainWatch plain_rounds = {};
  // By AcceptanceKey. Requests can name any mixture of drafters. So when there are kMostDrafters, one is
  // forgotten: that which was used longest ago, if nobody uses it now.
  std::map<std::string, DrafterMemory, std::less<>> drafters = {};
  int64_t n_policies = 0;  // that were made

  static constexpr size_t kMostDrafters = 64;
};

// What is learned of a drafter is learned apart by what it drafts with, dice included: its scores mean
// something else then.
std::string AcceptanceKey(const Drafter& drafter, bool dice);

// Chooses nodes so that expected tokens per millisecond are highest, none if plain decoding is faster
// (policy/adaptive_policy.cc). `key` is an AcceptanceKey; `memory` is borrowed and outlives the policy. A
// policy begins with what was learned of its drafter, tells the next ones what it learns, and takes nothing
// from those in flight beside it.
std::unique_ptr<Policy> MakeAdaptivePolicy(const SpeculationOptions& options, std::string_view key,
                                           AdaptiveMemory* memory);

// Whether the options ask for the adaptive policy: by spec_policy, or because the type is a portfolio.
bool WantsAdaptivePolicy(const SpeculationOptions& options);
Status CheckPolicy(const SpeculationOptions& options);

}  // namespace longspec
