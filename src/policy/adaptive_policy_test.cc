// SPDX-License-Identifier: Apache-2.0
//
// The adaptive policy against simulated machines and drafters, where the best decision is known; and through
// the real loop, where whatever it decides must not change the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "decode/testing/generate.h"
#include "decode/testing/tree_drafter.h"
#include "draft_model/option_use.h"
#include "lab/testing/with_lab.h"
#include "policy/policy.h"

namespace longspec::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int32_t kRight = 1, kWrong = 2, kSecond = 3;
constexpr double kVerifyMs = 0.05;

// What rounds cost in truth, and what a drafter proposes and the target makes of it.
struct World {
  std::function<double(int rows, int keys)> cost = [](int rows, int) { return 5.0 + 0.1 * rows; };
  double draft_ms = 0.01;
  double acceptance = 0.8;  // of every node, given its parent
  float score = 0.8F;       // that the drafter says
  int longest = 64;         // of its chains
  double level_ms = 0;      // of each level, besides: of an inner round of a nested drafter
  double second = 0;        // that a node's sibling is right if it is not; 0: it has none
};

// Plays rounds of chains, whose nodes may have siblings. Times are simulated, so decisions are reproducible.
class Simulation {
 public:
  explicit Simulation(World the_world, AdaptiveMemory* memory, SpeculationOptions options = {.type = "ngram"})
      : world(std::move(the_world)), policy_(MakeAdaptivePolicy(options, "simulated", memory)) {}

  // One round; returns the number of nodes verified.
  int Round() {
    const DraftBudget budget = policy_->Budget({.context = context, .room = 1000, .max_tokens = max_tokens});
    TokenTree tree(0);
    const bool asked = budget.max_nodes > 0;
    const int levels = asked ? std::min({world.longest, budget.max_nodes, budget.max_depth}) : 0;
    last_budget = budget.max_nodes;
    if (asked) {
      n_levels.push_back(levels);
      tree = policy_->Choose(Proposal(levels, budget.max_nodes));
    }
    Accepted accepted{.nodes = {0}, .tokens = {}};
    int at = 0;
    for (const int32_t token : Text(levels)) {
      accepted.tokens.push_back(token);
      at = tree.FindChild(at, token);
      if (at < 0) break;
      accepted.nodes.push_back(at);
    }
    const double draft_ms = asked ? world.draft_ms + world.level_ms * levels : 0.0;
    const double target_ms = world.cost(tree.size(), context);
    policy_->Observe({.tree = tree,
                      .accepted = accepted,
                      .context = context,
                      .asked = asked,
                      .draft_ms = draft_ms,
                      .target_ms = target_ms,
                      .verify_ms = kVerifyMs});
    tokens += static_cast<double>(accepted.tokens.size());
    ms += draft_ms + target_ms + kVerifyMs;
    n_asked += asked ? 1 : 0;
    return tree.size() - 1;
  }

  // Mean number of nodes over some rounds.
  double Rounds(int n) {
    tokens = ms = 0;
    n_asked = 0;
    n_levels.clear();
    double nodes = 0;
    for (int i = 0; i < n; ++i) nodes += Round();
    n_rounds = n;
    return nodes / n;
  }
  // Of the last Rounds, over plain decoding in the same world.
  double Speedup() const { return tokens / ms * (world.cost(1, context) + kVerifyMs); }
  // Of the last Rounds, that proposals were asked for in most of those that did; 0: in few.
  int Levels() {
    if (n_asked < n_rounds / 2) return 0;
    const auto middle = n_levels.begin() + std::ssize(n_levels) / 2;
    std::ranges::nth_element(n_levels, middle);
    return *middle;
  }
  PolicyReport report() const { return policy_->report(); }
  Policy& policy() { return *policy_; }

  World world;
  int context = 1000, max_tokens = 1 << 30;
  int last_budget = 0, n_asked = 0, n_rounds = 0;
  std::vector<int> n_levels;  // of each proposal
  double tokens = 0, ms = 0;

 private:
  TokenTree Proposal(int levels, int max_nodes) const {
    TokenTree tree(0);
    std::vector<int> chain = {0};
    for (int i = 0; i < levels; ++i) {
      chain.push_back(tree.AddChild(chain.back(), kRight, tree.node(chain.back()).score * world.score));
    }
    for (int i = 0; world.second > 0 && i < levels && tree.size() <= max_nodes; ++i) {
      const float rest = tree.node(chain[static_cast<size_t>(i)]).score * (1 - world.score);
      tree.AddChild(chain[static_cast<size_t>(i)], kSecond, rest * static_cast<float>(world.second));
    }
    return tree;
  }

  // That is right as far as a proposal of so many levels could be, verified or not.
  std::vector<int32_t> Text(int levels) {
    std::vector<int32_t> text;
    while (std::ssize(text) < levels && rng_.Uniform(draws_++) < world.acceptance) text.push_back(kRight);
    if (world.second > 0 && std::ssize(text) < levels && rng_.Uniform(draws_++) < world.second)
      text.push_back(kSecond);
    text.push_back(kWrong);
    return text;
  }

  std::unique_ptr<Policy> policy_;
  RngStream rng_{.seed = 9, .purpose = RngPurpose::kTest};
  uint64_t draws_ = 0;
};

double DearRows(int rows, int) { return 5.0 * rows; }
double CheapRows(int rows, int) { return 5.0 + 0.05 * rows; }
// Rows are free at short context and dear at long.
double DearWhenLong(int rows, int keys) { return 5.0 + keys * 1e-3 * rows; }

AdaptiveMemory Knows(const std::function<double(int, int)>& cost) {
  CostTable table{.rows = {1, 2, 4, 8, 16, 32, 64}, .keys = {256, 4096, 65536}, .ms = {}};
  for (const int rows : table.rows) {
    for (const int keys : table.keys) table.ms.push_back(cost(rows, keys));
  }
  return {.costs = CostModel(table), .drafters = {}};
}

TEST(Adaptive, GrowsWhereRowsAreCheapAndDraftsGood) {
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s({.cost = CheapRows, .acceptance = 0.95, .score = 0.95F}, &memory);
  s.Rounds(50);
  EXPECT_GT(s.Rounds(200), 20);
  EXPECT_GT(s.Speedup(), 5);
  EXPECT_THAT(s.report().last_decision, StartsWith("on: "));
}

// A table that was measured while others had the cores: every pass took as long as they let it. Rounds that
// speculate all agree with it, and only plain ones tell.
TEST(Adaptive, PlainRoundsFindATableOfABusyMachineOut) {
  const auto truth = [](int rows, int) { return 20.0 + 7.0 * rows; };
  AdaptiveMemory memory = Knows([](int rows, int) { return 55.0 + 0.2 * rows; });
  Simulation s({.cost = truth, .acceptance = 0.2, .score = 0.3F}, &memory);
  EXPECT_GT(s.Rounds(8), 1);
  s.Rounds(192);
  EXPECT_GT(s.Speedup(), 0.88);  // 0.78 without them
  s.Rounds(100);
  EXPECT_GT(s.Speedup(), 0.97);
}

// What they cost where speculation pays: the first after eight rounds, and ever fewer.
TEST(Adaptive, PlainRoundsAmongThoseThatSpeculateAreFew) {
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s({.cost = CheapRows, .acceptance = 0.95, .score = 0.95F}, &memory);
  int n_plain = 0, first = 0;
  for (int round = 1; round <= 1000; ++round) {
    if (s.Round() > 0) continue;
    if (++n_plain == 1) first = round;
    EXPECT_THAT(s.report().last_decision, HasSubstr("to measure"));
  }
  EXPECT_LE(first, 10);
  EXPECT_THAT(n_plain, ::testing::AllOf(::testing::Ge(4), ::testing::Le(10)));
  Simulation next({.cost = CheapRows, .acceptance = 0.95, .score = 0.95F}, &memory);  // of the same engine
  n_plain = 0;
  for (int round = 0; round < 100; ++round) n_plain += next.Round() == 0 ? 1 : 0;
  EXPECT_LE(n_plain, 1);
}

TEST(Adaptive, ShrinksWithAcceptance) {
  double last = 1e9;
  for (const double acceptance : {0.95, 0.8, 0.6}) {
    AdaptiveMemory memory = Knows([](int rows, int) { return 5.0 + 0.5 * rows; });
    Simulation s(
        {.cost = [](int rows, int) { return 5.0 + 0.5 * rows; }, .acceptance = acceptance, .score = 0.9F},
        &memory);
    s.Rounds(100);
    const double nodes = s.Rounds(300);
    EXPECT_LT(nodes, last);
    EXPECT_GT(s.Speedup(), 1.1) << acceptance;
    last = nodes;
  }
}

TEST(Adaptive, OffWhereRowsAreDear) {
  AdaptiveMemory memory = Knows(DearRows);
  Simulation s({.cost = DearRows, .acceptance = 0.9, .score = 0.9F}, &memory);
  s.Rounds(100);
  EXPECT_LT(s.Rounds(510), 0.01);
  EXPECT_GT(s.Speedup(), 0.99);
  EXPECT_THAT(s.report().last_decision, StartsWith("off: "));
  EXPECT_THAT(s.report().last_decision, HasSubstr("rows cost"));
  EXPECT_THAT(s.report().last_decision, HasSubstr("at 1.0K keys"));
}

TEST(Adaptive, NearlyAsFastAsPlainFromTheFirstRoundWhateverTheDrafterSays) {
  for (const float score : {0.2F, 0.6F, 1.0F}) {
    for (const auto& cost : {DearRows, CheapRows}) {
      AdaptiveMemory memory = Knows(cost);
      Simulation s({.cost = cost, .acceptance = 0.0, .score = score}, &memory);
      s.Rounds(300);
      EXPECT_GT(s.Speedup(), 0.94) << score;
    }
  }
}

TEST(Adaptive, WrongCostsAreFoundOut) {
  // The table says that rows are free; they are not.
  AdaptiveMemory memory = Knows([](int, int) { return 5.0; });
  Simulation s({.cost = DearRows, .acceptance = 0.5, .score = 0.9F}, &memory);
  s.Rounds(200);
  s.Rounds(500);
  EXPECT_GT(s.Speedup(), 0.97);
  // And the other way round: probes find out that rows are free.
  AdaptiveMemory dear = Knows(DearRows);
  Simulation t({.cost = CheapRows, .acceptance = 0.9, .score = 0.9F}, &dear);
  t.Rounds(3000);
  t.Rounds(500);
  EXPECT_GT(t.Speedup(), 2);
}

TEST(Adaptive, KnowsNothingOfTheMachineAndLearns) {
  AdaptiveMemory memory;
  Simulation s({.cost = CheapRows, .acceptance = 0.9, .score = 0.9F}, &memory);
  s.Rounds(100);
  s.Rounds(200);
  EXPECT_GT(s.Speedup(), 3);
}

TEST(Adaptive, TurnsOffWithTheContextAndSaysAtWhatLength) {
  AdaptiveMemory memory = Knows(DearWhenLong);
  Simulation s({.cost = DearWhenLong, .acceptance = 0.5, .score = 0.5F}, &memory);
  s.context = 300;
  s.Rounds(100);
  EXPECT_GT(s.Rounds(100), 1);
  EXPECT_GT(s.Speedup(), 1.4);
  s.context = 60000;
  s.Rounds(100);
  EXPECT_LT(s.Rounds(300), 0.1);
  EXPECT_GT(s.Speedup(), 0.98);
  EXPECT_THAT(s.report().last_decision, HasSubstr("58.6K keys"));
}

TEST(Adaptive, ComesBackWhenTheTextChanges) {
  const auto cost = [](int rows, int) { return 5.0 + 1.0 * rows; };
  AdaptiveMemory memory = Knows(cost);
  Simulation s({.cost = cost, .acceptance = 0.02, .score = 0.9F}, &memory);
  s.Rounds(600);
  EXPECT_LT(s.Rounds(300), 0.2);
  s.world.acceptance = 0.9;  // with the same scores: only the text can tell
  s.Rounds(40);
  EXPECT_GT(s.Rounds(100), 2);
  EXPECT_GT(s.Speedup(), 1.8);
}

TEST(Adaptive, ComesBackSoonerForAMuchBetterScore) {
  const auto cost = [](int rows, int) { return 5.0 + 1.0 * rows; };
  AdaptiveMemory memory = Knows(cost);
  Simulation s({.cost = cost, .acceptance = 0.02, .score = 0.3F}, &memory);
  s.Rounds(600);
  EXPECT_LT(s.Rounds(100), 0.2);
  s.world.acceptance = 0.95;
  s.world.score = 0.95F;
  s.Rounds(6);
  EXPECT_GT(s.Round(), 2);
}

// What is proposed is held against the text while nothing is verified.
TEST(Adaptive, LearnsWithoutSpeculating) {
  const auto cost = [](int rows, int) { return 5.0 + 2.0 * rows; };
  AdaptiveMemory memory = Knows(cost);
  // Scores promise too little to begin with: 0.2 for what comes nine times of ten.
  Simulation s({.cost = cost, .acceptance = 0.9, .score = 0.2F}, &memory);
  int first = 0;
  while (first < 100 && s.Round() == 0) ++first;
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 8);
  EXPECT_EQ(s.report().decisions.back().first, "off");  // no probe was needed
}

// The rounds of 1,000 that verified something, of drafts that are never right.
std::vector<int> ProbesWhereNothingIsRight(const std::function<double(int, int)>& cost) {
  AdaptiveMemory memory = Knows(cost);
  Simulation s({.cost = cost, .acceptance = 0.0, .score = 0.3F}, &memory);
  s.Rounds(100);
  std::vector<int> probes;
  for (int i = 0; i < 1000; ++i) {
    if (s.Round() > 0) probes.push_back(i);
  }
  for (const auto& [name, rounds] : s.report().decisions) {
    if (name == "probe") {
      EXPECT_GE(rounds, static_cast<int64_t>(probes.size()));
    }
  }
  return probes;
}

TEST(Adaptive, ProbesEverMoreRarely) {
  const auto probes = ProbesWhereNothingIsRight(CheapRows);
  ASSERT_GT(probes.size(), 5U);
  EXPECT_LT(probes.size(), 20U);
  EXPECT_EQ(probes[probes.size() - 1] - probes[probes.size() - 2], 128);
}

TEST(Adaptive, DearProbesTakeHalfAPercentOfTheTime) {
  const auto probes = ProbesWhereNothingIsRight(DearRows);
  ASSERT_GE(probes.size(), 4U);
  EXPECT_GE(probes[1] - probes[0], 199);
  EXPECT_LE(probes[1] - probes[0], 230);
}

TEST(Adaptive, DearDraftersAreNotAskedWhereTheyDoNotPay) {
  const World world = {.cost = CheapRows, .draft_ms = 12.0, .acceptance = 0.3, .score = 0.3F};
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s(world, &memory);
  s.Rounds(100);
  s.Rounds(500);
  EXPECT_LT(s.n_asked, 25);
  EXPECT_GT(s.Speedup(), 0.93);
  EXPECT_THAT(s.report().last_decision, HasSubstr("drafting"));

  AdaptiveMemory other = Knows(CheapRows);
  Simulation good({.cost = CheapRows, .draft_ms = 2.0, .acceptance = 0.9, .score = 0.9F, .longest = 6},
                  &other);
  good.Rounds(100);
  good.Rounds(300);
  EXPECT_GT(good.n_asked, 280);
  EXPECT_GT(good.Speedup(), 1.8);
  EXPECT_LT(good.last_budget, 20);
}

// A nested drafter goes on as long as the budget is deep: how many inner rounds are made before a full pass
// follows from what they cost.
TEST(Adaptive, InnerRoundsAreFewerTheDearerTheyAre) {
  double last = 100;
  for (const double share : {0.01, 0.1, 0.25}) {  // of a full pass
    AdaptiveMemory memory = Knows(CheapRows);
    Simulation s({.cost = CheapRows, .level_ms = 5.0 * share}, &memory);
    s.Rounds(100);
    const double nodes = s.Rounds(400);
    EXPECT_LT(nodes, last - 1) << share;
    EXPECT_GT(nodes, 2) << share;
    EXPECT_GT(s.Speedup(), 1.2) << share;
    last = nodes;
  }
}

// The best that can be done, with hindsight, where every level takes time.
struct Best {
  int levels = 0;
  double speedup = 1;
};
Best BestOf(const World& world, int keys = 1000) {
  const double plain_ms = world.cost(1, keys) + kVerifyMs;
  Best best;
  std::vector<double> reach;
  for (int levels = 1; levels <= 32; ++levels) {
    const double above = std::pow(world.acceptance, levels - 1);
    reach.push_back(above * world.acceptance);
    if (world.second > 0) reach.push_back(above * (1 - world.acceptance) * world.second);
    std::ranges::sort(reach, std::greater());
    double tokens = 1;
    for (size_t i = 0; i < reach.size(); ++i) {
      tokens += reach[i];
      const double ms =
          world.draft_ms + levels * world.level_ms + world.cost(static_cast<int>(i) + 2, keys) + kVerifyMs;
      if (tokens / ms * plain_ms > best.speedup) best = {levels, tokens / ms * plain_ms};
    }
  }
  return best;
}

void ExpectItSettledOnTheBest(Simulation& s, const std::string& where) {
  const Best best = BestOf(s.world);
  EXPECT_NEAR(s.Levels(), best.levels, std::max(1.0, 0.2 * best.levels)) << where;
  EXPECT_GT(s.Speedup(), 0.95 * best.speedup) << where << ": " << best.speedup << " could be had";
}

TEST(Adaptive, ADearDrafterIsAskedForTheLevelsThatPayBest) {
  for (const double share : {0.1, 0.2, 0.4}) {
    for (const double acceptance : {0.6, 0.9}) {
      for (const double second : {0.0, 0.5}) {
        const World world = {
            .cost = CheapRows, .acceptance = acceptance, .level_ms = 5.0 * share, .second = second};
        AdaptiveMemory memory = Knows(CheapRows);
        const std::string where =
            std::to_string(share) + ", " + std::to_string(acceptance) + ", " + std::to_string(second);
        Simulation s(world, &memory);
        s.Rounds(100);
        s.Rounds(2000);
        ExpectItSettledOnTheBest(s, where);
        Simulation next(world, &memory);  // begins with a look
        next.Rounds(40);
        next.Rounds(2000);
        ExpectItSettledOnTheBest(next, where + ", the next");
      }
    }
  }
}

// A first pass that takes long, and levels that take little: fewer of them do not cost less.
TEST(Adaptive, WhatTakesTimeOnceIsNoReasonToAskForLess) {
  const World world = {.cost = CheapRows, .draft_ms = 4.0, .acceptance = 0.85, .level_ms = 0.3};
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s(world, &memory);
  s.Rounds(200);
  s.Rounds(2000);
  ExpectItSettledOnTheBest(s, "");
}

TEST(Adaptive, ADrafterAsDearAsTheTargetCostsNextToNothing) {
  for (const double acceptance : {0.6, 0.9}) {
    const World world = {.cost = CheapRows, .acceptance = acceptance, .level_ms = 5.0};
    AdaptiveMemory memory = Knows(CheapRows);
    Simulation s(world, &memory);
    s.Rounds(20);
    EXPECT_LT(s.Rounds(1000), 0.02);
    EXPECT_GT(s.Speedup(), 0.985) << acceptance;
    EXPECT_EQ(s.Levels(), 0);
    Simulation next(world, &memory);  // from the first round on
    next.Rounds(1000);
    EXPECT_GT(next.Speedup(), 0.985) << acceptance;
    EXPECT_LT(next.n_asked, 5);
  }
}

TEST(Adaptive, LevelsFollowWhatTheyCost) {
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s({.cost = CheapRows, .acceptance = 0.9, .level_ms = 2.0}, &memory);
  s.Rounds(200);
  for (const double level_ms : {0.5, 2.0, 1.0, 0.5}) {
    s.world.level_ms = level_ms;
    s.Rounds(60);
    s.Rounds(2000);
    ExpectItSettledOnTheBest(s, std::to_string(level_ms));
  }
  s.world.level_ms = 5.0;
  s.Rounds(60);
  s.Rounds(1000);
  EXPECT_EQ(s.Levels(), 0);
  EXPECT_GT(s.Speedup(), 0.985);
  s.world.level_ms = 1.0;
  s.Rounds(800);  // a probe of a drafter that was so dear is rare
  s.Rounds(2000);
  ExpectItSettledOnTheBest(s, "on again");
}

TEST(Adaptive, AFirstProposalThatTakesLongIsNoVerdict) {
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s({.cost = CheapRows, .draft_ms = 200.0, .acceptance = 0.9, .level_ms = 1.0}, &memory);
  s.Round();
  s.world.draft_ms = 0.01;
  s.Rounds(100);
  EXPECT_GT(s.n_asked, 90);
}

// What takes little because little is asked for is not asked for much.
TEST(Adaptive, ADrafterThatIsNearlyCheapIsAskedEvenly) {
  const World world = {.cost = CheapRows, .acceptance = 0.3, .level_ms = 0.15};
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s(world, &memory);
  s.Rounds(100);
  s.Rounds(2000);
  ExpectItSettledOnTheBest(s, "");
  EXPECT_LE(std::ranges::max(s.n_levels), s.Levels() + 2);
}

// Which of its members are worth their time is decided by member (policy/asking.h).
TEST(Adaptive, APortfolioIsAskedInEveryRound) {
  AdaptiveMemory memory = Knows(CheapRows);
  Simulation s({.cost = CheapRows, .draft_ms = 0.4, .acceptance = 0.05, .score = 0.05F}, &memory,
               {.type = "auto"});
  s.Rounds(100);
  EXPECT_EQ(s.n_asked, 100);
}

TEST(Adaptive, SlowRoundsThatNoEstimateExplainsMakeAPause) {
  // Every acceptance is as estimated, but speculated rounds take long for a reason of their own: drafting
  // that is cheap when it is looked at.
  AdaptiveMemory memory = Knows(CheapRows);
  World world = {.cost = CheapRows, .acceptance = 0.4, .score = 0.4F};
  Simulation s(world, &memory);
  int calls = 0;
  s.world.cost = [&calls](int rows, int) { return rows > 1 && ++calls % 3 == 0 ? 60.0 : 5.0; };
  s.Rounds(2000);
  std::map<std::string, int64_t> decisions;
  for (const auto& [name, rounds] : s.report().decisions) decisions[name] = rounds;
  EXPECT_GT(decisions["paused"] + decisions["off"], 1000);
  EXPECT_GT(decisions["speculated"] + decisions["probe"], 10);
}

TEST(Adaptive, KeepsToRoomTokensAndOptions) {
  AdaptiveMemory memory = Knows(CheapRows);
  const auto policy = MakeAdaptivePolicy({.type = "ngram", .adaptive_n_max = 12}, "x", &memory);
  const auto budget = [&](int room, int max_tokens) {
    const DraftBudget b = policy->Budget({.context = 10, .room = room, .max_tokens = max_tokens});
    return std::pair(b.max_nodes, b.max_depth);
  };
  EXPECT_EQ(budget(100, 1), std::pair(0, 0));
  EXPECT_EQ(policy->report().last_decision, "plain: no room for drafts");
  EXPECT_EQ(budget(1, 100), std::pair(0, 0));
  EXPECT_EQ(budget(0, 100), std::pair(0, 0));
  EXPECT_EQ(budget(100, 3).second, 2);
  EXPECT_EQ(budget(5, 100).first, 4);
  EXPECT_LE(budget(1 << 20, 1 << 30).first, 12);
  Simulation none({.cost = CheapRows}, &memory, {.type = "ngram", .adaptive_n_max = 0});
  EXPECT_EQ(none.Rounds(10), 0);
  Simulation few({.cost = CheapRows, .longest = 2}, &memory, {.type = "ngram", .draft_n_min = 3});
  EXPECT_EQ(few.Rounds(50), 0);
}

TEST(Adaptive, VerifiesTheBestNodesOfATree) {
  const auto cost = [](int rows, int) { return 5.0 + 1.0 * rows; };
  AdaptiveMemory memory = Knows(cost);
  const auto policy = MakeAdaptivePolicy({}, "x", &memory);
  policy->Budget({.context = 10, .room = 100, .max_tokens = 100});
  TokenTree tree(0);
  const int weak = tree.AddChild(0, 1, 0.05F);
  tree.AddChild(weak, 2, 0.04F);
  const int good = tree.AddChild(0, 3, 0.95F, 1);
  tree.AddChild(good, 4, 0.9F, 1);
  const TokenTree chosen = policy->Choose(tree);
  ASSERT_EQ(chosen.size(), 3);
  EXPECT_EQ(chosen.node(1).token, 3);
  EXPECT_EQ(chosen.node(1).source, 1);
  EXPECT_EQ(chosen.node(2).token, 4);
  EXPECT_EQ(policy->Choose(TokenTree(0)).size(), 1);
  EXPECT_EQ(policy->report().last_decision, "plain: nothing proposed");
}

TEST(Adaptive, LearnsAcrossGenerationsByDrafter) {
  AdaptiveMemory memory = Knows(DearRows);
  const auto cost = [](int rows, int) { return 5.0 + 1.0 * rows; };
  {
    Simulation s({.cost = cost, .acceptance = 0.0, .score = 0.9F}, &memory);
    s.Rounds(100);
  }
  EXPECT_EQ(memory.drafters.size(), 1U);
  EXPECT_LT(memory.drafters.at("simulated").acceptance.Estimate({.score = 0.89}), 0.4);
  const auto other = MakeAdaptivePolicy({}, "another", &memory);
  EXPECT_EQ(memory.drafters.size(), 2U);
  EXPECT_EQ(memory.drafters.at("simulated").in_flight, 0);
}

// Suggestions in an editor are answers of ten tokens. One of them is too short to find out that its guesses
// are wrong, but the next ones begin with what it found.
TEST(Adaptive, ShortAnswersTeachTheOnesAfterThem) {
  const auto cost = [](int rows, int) { return 5.0 + 0.6 * rows; };
  AdaptiveMemory memory = Knows(cost);
  double ms = 0, plain_ms = 0;
  for (int answer = 0; answer < 60; ++answer) {
    Simulation s({.cost = cost, .acceptance = 0.1, .score = 0.6F}, &memory);
    s.max_tokens = 10;
    s.Rounds(9);
    if (answer < 10) continue;
    ms += s.ms;
    plain_ms += s.tokens * (cost(1, s.context) + kVerifyMs);
  }
  EXPECT_GT(plain_ms / ms, 0.97);
}

// Rounds that take longer than any estimate says, in answers too short for a trial of their own.
TEST(Adaptive, ShortAnswersAreTriedTogether) {
  AdaptiveMemory memory = Knows(CheapRows);
  std::map<std::string, int64_t> decisions;
  for (int answer = 0; answer < 40; ++answer) {
    Simulation s({.cost = CheapRows, .acceptance = 0.4, .score = 0.4F}, &memory);
    int calls = 0;
    s.world.cost = [&calls](int rows, int) { return rows > 1 && ++calls % 3 == 0 ? 60.0 : 5.0; };
    s.Rounds(9);
    for (const auto& [name, rounds] : s.report().decisions) decisions[name] += rounds;
  }
  EXPECT_GT(decisions["paused"], 40);
}

// Requests may name mixtures of drafters without end.
TEST(Adaptive, OfManyDraftersTheOneUsedLongestAgoIsForgotten) {
  AdaptiveMemory memory = Knows(CheapRows);
  const auto in_use = MakeAdaptivePolicy({}, "in use", &memory);
  const auto key = [](int i) { return "mixture " + std::to_string(i); };
  const int most = static_cast<int>(AdaptiveMemory::kMostDrafters);
  for (int i = 0; i < 3 * most; ++i) {
    (void)MakeAdaptivePolicy({}, key(i), &memory);
    (void)MakeAdaptivePolicy({}, key(0), &memory);
  }
  EXPECT_EQ(memory.drafters.size(), AdaptiveMemory::kMostDrafters);
  for (const std::string& kept : {std::string("in use"), key(0), key(3 * most - 1), key(2 * most + 2)})
    EXPECT_TRUE(memory.drafters.contains(kept)) << kept;
  EXPECT_FALSE(memory.drafters.contains(key(2 * most + 1)));
}

// What a dear drafter costs is known from the first generation on: it gets no look where it cannot pay.
TEST(Adaptive, DraftCostsOutliveAGeneration) {
  AdaptiveMemory memory = Knows(CheapRows);
  const World dear = {.cost = CheapRows, .draft_ms = 60.0, .acceptance = 0.9, .score = 0.9F};
  const auto asked = [&](const World& world) {
    Simulation s(world, &memory);
    s.Rounds(30);
    return s.n_asked;
  };
  EXPECT_EQ(asked(dear), 2);  // which tell what it costs; the first time might have been an exception
  for (int generation = 0; generation < 5; ++generation) EXPECT_EQ(asked(dear), 0) << generation;
  const auto took = [&](int levels) { return memory.drafters.at("simulated").draft_time.Ms(levels); };
  EXPECT_NEAR(took(8), 60.0, 2);
  // One that may pay is looked at for every text; what it takes the first time is not all that is known of
  // it.
  memory = Knows(CheapRows);
  World may_pay = {.cost = CheapRows, .draft_ms = 1.0, .acceptance = 0.9, .score = 0.9F, .longest = 6};
  EXPECT_GT(asked(may_pay), 25);
  EXPECT_NEAR(took(6), 1.0, 1e-3);
  Simulation next(may_pay, &memory);
  next.world.draft_ms = 1.5;
  next.Round();
  EXPECT_NEAR(memory.drafters.at("simulated").draft_time.mean_ms(), 1.1, 1e-6);
  next.world.draft_ms = 1.0;
  next.Rounds(60);
  EXPECT_GT(next.n_asked, 50);
}

// A generation that begins, or finds its text changed, takes nothing from one in flight, which has learned
// much; and the one after both begins with what both learned.
TEST(Adaptive, WhatIsLearnedIsNotFadedUnderOthers) {
  const auto cost = [](int rows, int) { return 5.0 + 0.4 * rows; };
  const auto chances = [](Policy& policy) {
    policy.Budget({.context = 1000, .room = 1000, .max_tokens = 100});
    TokenTree tree(0);
    float reach = 1;
    for (int i = 0; i < 6; ++i) tree.AddChild(i, kRight, reach *= 0.5F);
    const auto value = policy.Value(tree);
    return std::vector<double>(value->reach.begin(), value->reach.end());
  };
  AdaptiveMemory memory = Knows(cost);
  Simulation first({.cost = cost, .acceptance = 0.97, .score = 0.5F}, &memory);
  first.Rounds(200);
  const std::vector<double> before = chances(first.policy());
  EXPECT_GT(before[0], 0.85);
  const double shared = memory.drafters.at("simulated").acceptance.Estimate({.score = 0.5});
  {
    // Eight others, whose text is another: they start from what is known, and learn for themselves.
    std::vector<std::unique_ptr<Simulation>> others;
    for (int i = 0; i < 8; ++i) {
      others.push_back(
          std::make_unique<Simulation>(World{.cost = cost, .acceptance = 0.05, .score = 0.5F}, &memory));
      EXPECT_GT(chances(others.back()->policy())[0], 0.8) << i;
    }
    EXPECT_EQ(memory.drafters.at("simulated").in_flight, 9);
    EXPECT_EQ(chances(first.policy()), before);
    EXPECT_EQ(memory.drafters.at("simulated").acceptance.Estimate({.score = 0.5}), shared);
    for (auto& other : others) other->Rounds(60);
    EXPECT_EQ(chances(first.policy()), before);
    EXPECT_LT(chances(others[0]->policy())[0], 0.4);
  }
  EXPECT_EQ(memory.drafters.at("simulated").in_flight, 1);
  Simulation next({.cost = cost}, &memory);
  EXPECT_LT(chances(next.policy())[0], before[0]);
}

// One after the other, estimates that outlive a generation are its own: as if there were one table.
TEST(Adaptive, AloneTheTablesAreOne) {
  const auto cost = [](int rows, int) { return 5.0 + 0.4 * rows; };
  AdaptiveMemory memory = Knows(cost);
  for (const double acceptance : {0.9, 0.1, 0.6}) {
    Simulation s({.cost = cost, .acceptance = acceptance, .score = 0.5F}, &memory);
    s.Rounds(100);
    s.policy().Budget({.context = 1000, .room = 1000, .max_tokens = 100});
    TokenTree tree(0);
    tree.AddChild(0, kRight, 0.5F);
    const double own = s.policy().Value(tree)->reach[0];
    EXPECT_EQ(memory.drafters.at("simulated").acceptance.Estimate(KindOf(tree, 1, 1000)), own) << acceptance;
  }
}

// --- Through the real loop. ---

constexpr int kVocab = 12;
const ToyLanguage& Language() {
  static const ToyLanguage language(kVocab, 11);
  return language;
}

TEST(AdaptiveEquality, TheTextIsThatOfPlainDecoding) {
  int64_t accepted = 0, drafted = 0;
  for (const SamplingOptions& sampling :
       {Temperature(0.0F), Temperature(0.7F), Temperature(1.0F), AllPenalties(0.0F), AllPenalties(0.7F)}) {
    for (const auto& cost : {DearRows, CheapRows}) {
      for (const char* type : {"auto", "ngram", "ngram,replay"}) {
        const Job job = {.n_predict = 150, .sampling = sampling};
        const std::vector<int32_t> truth = DecodePlainly(Language(), job);
        std::vector<int32_t> guesses = truth;
        for (size_t i = 3; i < truth.size(); i += 7) guesses[i] = (truth[i] + 1) % kVocab;
        const SpeculationOptions speculation = {.type = type,
                                                .ngram = {.max = 3, .min = 1},
                                                .policy = "adaptive",
                                                .added = Replay({.tokens = guesses})};
        AdaptiveMemory memory = Knows(cost);
        const auto drafter = std::move(*MakeDrafter(OnlyRead(speculation, type)));
        Rig rig(Language(), job, drafter.get(), MakeAdaptivePolicy(speculation, drafter->name(), &memory));
        rig.Run();
        ASSERT_EQ(rig.generated(), truth) << type;
        accepted += rig.decoder.stats().accepted;
        drafted += rig.decoder.stats().drafted;
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(drafted, accepted);
}

TEST(AdaptiveEquality, RandomTreesAndTheEndOfTheContext) {
  for (const int capacity : {40, 200}) {
    const Job job = {.n_predict = 160, .capacity = capacity, .sampling = Temperature(0.7F)};
    std::vector<int32_t> truth = job.prompt;
    const std::vector<int32_t> text = DecodePlainly(Language(), job);
    truth.insert(truth.end(), text.begin(), text.end());
    TreeDrafter drafter(truth, kVocab, 8, 5);
    AdaptiveMemory memory = Knows(CheapRows);
    Rig rig(Language(), job, &drafter, MakeAdaptivePolicy({}, "tree", &memory));
    ASSERT_TRUE(rig.decoder.Prefill().ok());
    while (!rig.done()) {
      const auto step = rig.Step();
      if (!step.ok()) break;
      ASSERT_NO_FATAL_FAILURE(rig.ExpectInvariant());
    }
    const auto generated = rig.generated();
    EXPECT_EQ(static_cast<int>(generated.size()), std::min(160, capacity + 1 - 6));
    EXPECT_TRUE(std::equal(generated.begin(), generated.end(), text.begin()));
    EXPECT_GT(rig.decoder.stats().accepted, 5);
    EXPECT_GE(rig.decoder.stats().proposed, rig.decoder.stats().drafted);
  }
}

TEST(PolicyOptions, PortfoliosAreAdaptiveUnlessTheOptionsSayOtherwise) {
  EXPECT_TRUE(WantsAdaptivePolicy({}));
  EXPECT_TRUE(WantsAdaptivePolicy({.type = "ngram,replay"}));
  EXPECT_FALSE(WantsAdaptivePolicy({.type = "ngram"}));
  EXPECT_TRUE(WantsAdaptivePolicy({.type = "ngram", .policy = "adaptive"}));
  EXPECT_FALSE(WantsAdaptivePolicy({.policy = "fixed"}));
  EXPECT_TRUE(CheckPolicy({}).ok());
  EXPECT_TRUE(CheckPolicy({.policy = "fixed"}).ok());
  EXPECT_THAT(CheckPolicy({.policy = "clever"}).message(),
              HasSubstr("--spec-policy clever: unknown; known are"));
}

}  // namespace
}  // namespace longspec::testing
