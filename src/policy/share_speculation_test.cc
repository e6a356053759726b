// SPDX-License-Identifier: Apache-2.0
//
// The choice against the rule it follows with one sequence, and against trying every choice with a few.
#include "policy/share_speculation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/counter_rng.h"

namespace longspec {
namespace {

constexpr SpeculationObjective kFairness = SpeculationObjective::kFairness;
constexpr SpeculationObjective kThroughput = SpeculationObjective::kThroughput;

CostModel Made(const std::function<double(int rows, int keys)>& ms) {
  CostTable table{.rows = {1, 2, 4, 8, 9, 16, 17, 32, 64}, .keys = {256, 4096}, .ms = {}};
  for (const int rows : table.rows) {
    for (const int keys : table.keys) table.ms.push_back(ms(rows, keys));
  }
  return CostModel(table);
}

// Rows are free up to eight, and then up to sixteen again.
double Steps(int rows, int keys) { return 4 * ((rows + 7) / 8) + 1e-4 * keys * rows; }
double Affine(int rows, int keys) { return 4 + 0.4 * rows + 1e-3 * keys; }  // attention is read, not computed

std::vector<double> Falling(const RngStream& rng, uint64_t position, int n) {
  std::vector<double> reach;
  for (int i = 0; i < n; ++i) reach.push_back(rng.Uniform(position, static_cast<uint32_t>(i)));
  std::sort(reach.begin(), reach.end(), std::greater<>());
  return reach;
}

std::vector<double> Powers(double share, int n) {
  std::vector<double> reach;
  for (int i = 1; i <= n; ++i) reach.push_back(std::pow(share, i));
  return reach;
}

// As policy/adaptive_policy.cc has it: the first n of at least 1 with the highest rate.
int BestCount(const CostModel& costs, int keys, const std::vector<double>& reach, double sample_ms,
              double* rate_of_best, double* plain) {
  const auto rate = [&](int n) {
    const double gain = std::accumulate(reach.begin(), reach.begin() + n, 0.0);
    return (1 + gain) / (costs.TargetMs(1 + n, keys) + 0.0 + sample_ms * (1 + gain));
  };
  int best = 1;
  for (int n = 2; n <= static_cast<int>(reach.size()); ++n) {
    if (rate(n) > rate(best)) best = n;
  }
  *rate_of_best = rate(best);
  *plain = rate(0);
  return best;
}

TEST(ShareSpeculation, WithOneSequenceItIsTheRuleOfOne) {
  const RngStream rng{.seed = 11, .purpose = RngPurpose::kTest};
  int n_worth = 0, n_not = 0, n_few = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    const CostModel costs = Made([&](int rows, int keys) {
      return 2 + rows * (0.02 + 6 * std::pow(rng.Uniform(i, 1), 3)) +
             keys * 1e-3 * (1 + rows * rng.Uniform(i, 2)) +
             3 * rng.Uniform(i, 100 + static_cast<uint32_t>(rows));
    });
    const int keys = 100 + static_cast<int>(8000 * rng.Uniform(i, 3));
    const double sample_ms = 0.3 * rng.Uniform(i, 4);
    const int min_nodes = static_cast<int>(5 * rng.Uniform(i, 5));
    std::vector<double> reach = Falling(rng, 1000 + i, 1 + static_cast<int>(40 * rng.Uniform(i, 6)));
    for (double& chance : reach) chance *= rng.Uniform(i, 7);
    double rate = 0, plain = 0;
    const int best = BestCount(costs, keys, reach, sample_ms, &rate, &plain);
    const bool worth = best >= min_nodes && rate > 1.03 * plain;
    const PassPart part{.rows = 1, .keys = keys};
    const SpeculationCandidates candidates{.reach = reach, .sample_ms = sample_ms, .min_nodes = min_nodes};
    for (const auto objective : {kFairness, kThroughput}) {
      const SpeculationShares shares = ShareSpeculation({&part, 1}, {&candidates, 1}, PassCost(costs),
                                                        {.objective = objective, .margin = 1.03});
      ASSERT_EQ(shares.best, std::vector{best}) << i;
      ASSERT_EQ(shares.nodes, std::vector{worth ? best : 0}) << i;
      ASSERT_DOUBLE_EQ(shares.gain, rate / plain);
    }
    n_worth += worth ? 1 : 0;
    n_not += rate <= 1.03 * plain ? 1 : 0;
    n_few += best < min_nodes ? 1 : 0;
  }
  EXPECT_GT(n_worth, 50);  // of each kind some were seen
  EXPECT_GT(n_not, 20);
  EXPECT_GT(n_few, 5);
}

struct Choice {
  std::vector<PassPart> parts;
  std::vector<std::vector<double>> reach;

  std::vector<SpeculationCandidates> Candidates() const {
    std::vector<SpeculationCandidates> all;
    for (const std::vector<double>& of_one : reach) all.push_back({.reach = of_one});
    return all;
  }
  double Value(const PassCost& cost, const std::vector<int>& nodes, SpeculationObjective objective) const {
    std::vector<PassPart> grown = parts;
    double sum = 0, logs = 0;
    for (size_t s = 0; s < grown.size(); ++s) {
      grown[s].rows += nodes[s];
      const double tokens = std::accumulate(reach[s].begin(), reach[s].begin() + nodes[s], 1.0);
      sum += tokens;
      logs += std::log(tokens);
    }
    const auto n = static_cast<double>(parts.size());
    return (objective == kThroughput ? sum / n : std::exp(logs / n)) / cost.Ms(grown);
  }
  // The highest value of all choices.
  double Highest(const PassCost& cost, SpeculationObjective objective) const {
    std::vector<int> nodes(parts.size());
    double highest = 0;
    while (true) {
      highest = std::max(highest, Value(cost, nodes, objective));
      size_t s = 0;
      while (s < nodes.size() && ++nodes[s] > static_cast<int>(reach[s].size())) nodes[s++] = 0;
      if (s == nodes.size()) return highest;
    }
  }
};

Choice Random(uint64_t seed) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  Choice choice;
  for (uint32_t s = 0; s < 3; ++s) {
    const int keys = 200 + static_cast<int>(6000 * rng.Uniform(1, s));
    choice.parts.push_back({.rows = 1, .keys = keys});
    choice.reach.push_back(Falling(rng, 10 + s, 7));
  }
  return choice;
}

// Where every row costs the same, the best rows of all are the best choice of each count.
TEST(ShareSpeculation, IsTheBestOfAllChoicesWhereRowsCostTheSame) {
  const CostModel affine = Made(Affine);
  const PassCost cost(affine);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Choice choice = Random(seed);
    for (const auto objective : {kFairness, kThroughput}) {
      const SpeculationShares shares =
          ShareSpeculation(choice.parts, choice.Candidates(), cost, {.objective = objective});
      ASSERT_NEAR(choice.Value(cost, shares.nodes, objective), choice.Highest(cost, objective), 1e-9) << seed;
    }
  }
}

// Of the best value, the least and the mean that is reached.
struct Reached {
  double least = 1, mean = 0;
};
Reached ReachedOn(const CostModel& costs, bool sharing) {
  const PassCost cost(costs);
  Reached reached;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Choice choice = Random(100 + seed);
    if (sharing) {
      choice.parts[1].keys = choice.parts[2].keys = 6000;
      choice.parts[2].shared_with = 1;
      choice.parts[2].shared_keys = 5888;
    }
    for (const auto objective : {kFairness, kThroughput}) {
      const SpeculationShares shares =
          ShareSpeculation(choice.parts, choice.Candidates(), cost, {.objective = objective});
      const double part = choice.Value(cost, shares.nodes, objective) / choice.Highest(cost, objective);
      reached.least = std::min(reached.least, part);
      reached.mean += part / 80;
    }
  }
  return reached;
}

TEST(ShareSpeculation, IsCloseToTheBestWhereTheyDoNot) {
  // Attention of more rows of one sequence is ever dearer: prices change with every node.
  const auto dearer = [](int rows, int keys) { return 4 + 0.1 * rows + 2e-5 * keys * rows * rows; };
  for (const bool sharing : {false, true}) {
    const Reached steps = ReachedOn(Made(Steps), sharing);
    EXPECT_GT(steps.least, 0.97) << sharing;
    EXPECT_GT(steps.mean, 0.998) << sharing;
    const Reached bent = ReachedOn(Made(dearer), sharing);
    EXPECT_GT(bent.least, 0.97) << sharing;
    EXPECT_GT(bent.mean, 0.998) << sharing;
  }
}

// Eight rows are free; more cost as much again. The value falls at the ninth and rises until the sixteenth.
TEST(ShareSpeculation, LooksBeyondAStep) {
  const CostModel costs = Made([](int rows, int) { return 4.0 * ((rows + 7) / 8); });
  const PassPart part{.rows = 1, .keys = 500};
  const std::vector<double> reach = Powers(0.97, 15);
  const SpeculationCandidates candidates{.reach = reach};
  const auto choose = [&](int max_nodes) {
    return ShareSpeculation({&part, 1}, {&candidates, 1}, PassCost(costs), {.max_nodes = max_nodes}).nodes[0];
  };
  EXPECT_EQ(choose(100), 7);
  const std::vector<double> sure(15, 1.0);
  const std::vector<PassPart> parts(2, part);
  // Two sequences fill one step with eight tokens, two steps with sixteen for twice the time; a dear round
  // around them makes the second step worth it.
  const std::vector<SpeculationCandidates> both(2, {.reach = sure});
  SpeculationShares shares = ShareSpeculation(parts, both, PassCost(costs), {});
  EXPECT_EQ(shares.nodes[0] + shares.nodes[1], 6);
  shares = ShareSpeculation(parts, both, PassCost(costs), {.overhead_ms = 1});
  EXPECT_GT(shares.nodes[0] + shares.nodes[1], 14);
  shares = ShareSpeculation(parts, both, PassCost(costs), {.overhead_ms = 1, .max_nodes = 9});
  EXPECT_EQ(shares.nodes[0] + shares.nodes[1], 6);
}

TEST(ShareSpeculation, FairnessGivesTheHardOnesTheirShare) {
  const CostModel costs = Made(Affine);
  const std::vector<PassPart> parts(2, {.rows = 1, .keys = 500});
  const std::vector<double> easy = Powers(0.98, 30), hard = Powers(0.55, 30);
  const std::vector<SpeculationCandidates> candidates = {{.reach = easy}, {.reach = hard}};
  const PassCost cost(costs);
  const auto fair = ShareSpeculation(parts, candidates, cost, {.objective = kFairness}).nodes;
  const auto most = ShareSpeculation(parts, candidates, cost, {.objective = kThroughput}).nodes;
  EXPECT_LT(fair[0], most[0]);
  EXPECT_GE(fair[1], most[1]);
  EXPECT_GT(fair[1], 0);
}

// A sequence that proposes nothing pays for the others' nodes: the more of them, the fewer nodes.
TEST(ShareSpeculation, WhoProposesNothingCountsAllTheSame) {
  const CostModel costs = Made(Affine);
  const std::vector<double> reach = Powers(0.9, 30);
  int last = 31;
  for (const int others : {0, 2, 8}) {
    std::vector<PassPart> parts(static_cast<size_t>(1 + others), {.rows = 1, .keys = 500});
    std::vector<SpeculationCandidates> candidates(parts.size());
    candidates[0].reach = reach;
    const int nodes = ShareSpeculation(parts, candidates, PassCost(costs), {}).nodes[0];
    EXPECT_LT(nodes, last) << others;
    last = nodes;
  }
}

// A row of a guess costs what a row of a later round does, or more; a long pass does not make it cheap.
TEST(ShareSpeculation, PromptsInThePassMakeNoGuessCheap) {
  const CostModel costs = Made([](int rows, int) { return rows <= 8 ? 4.0 : 4.0 + 0.8 * (rows - 8); });
  const std::vector<double> likely = {0.6, 0.5, 0.4};
  const std::vector<SpeculationCandidates> candidates = {{.reach = likely}, {.reach = likely}, {}};
  const auto nodes = [&](int prompt_rows, bool with_prompts) {
    const std::vector<PassPart> parts = {
        {.rows = 1, .keys = 300}, {.rows = 1, .keys = 300}, {.rows = prompt_rows, .keys = 300}};
    const PassPart prompt = parts.back();
    const PassCost cost(costs);
    const double prompts_ms = with_prompts ? cost.Ms({&prompt, 1}) : 0;
    return ShareSpeculation(parts, candidates, cost, {.margin = 1.03, .prompts_ms = prompts_ms}).nodes;
  };
  EXPECT_EQ(nodes(60, true), (std::vector{0, 0, 0}));
  EXPECT_EQ(nodes(60, false), (std::vector{3, 3, 0}));  // what it looks like by all of the pass
  // Beside the end of a short prompt the first eight rows cost the same, and are filled.
  EXPECT_EQ(nodes(1, true), (std::vector{3, 2, 0}));
}

TEST(ShareSpeculation, NodesOfSharedKeysAreCheaper) {
  const CostModel costs =
      Made([](int rows, int keys) { return 4 + 0.1 * rows + keys * (2e-3 + 2e-4 * rows); });
  std::vector<PassPart> parts(4, {.rows = 1, .keys = 4096});
  const std::vector<double> reach = Powers(0.8, 20);
  const std::vector<SpeculationCandidates> candidates(4, {.reach = reach});
  const PassCost cost(costs);
  const auto sum = [&] {
    const auto nodes = ShareSpeculation(parts, candidates, cost, {.objective = kThroughput}).nodes;
    return std::accumulate(nodes.begin(), nodes.end(), 0);
  };
  const int apart = sum();
  for (size_t i = 1; i < 4; ++i) {
    parts[i].shared_with = 0;
    parts[i].shared_keys = 3840;
  }
  EXPECT_LT(sum(), apart);  // the pass got cheaper, its rows did not
  // Per token the shared pass is the faster one.
  const auto value = [&](int nodes) {
    std::vector<PassPart> grown = parts;
    for (PassPart& part : grown) part.rows += nodes;
    return cost.Ms(grown);
  };
  const double together = value(2);
  for (PassPart& part : parts) part.shared_with = -1;
  EXPECT_GT(value(2), 1.5 * together);
}

TEST(ShareSpeculation, NothingProposedNothingChosen) {
  const CostModel costs = Made(Affine);
  const std::vector<PassPart> parts(3, {.rows = 1, .keys = 500});
  const std::vector<SpeculationCandidates> none(3);
  const SpeculationShares shares = ShareSpeculation(parts, none, PassCost(costs), {});
  EXPECT_EQ(shares.nodes, std::vector<int>(3));
  EXPECT_EQ(shares.gain, 1);
  const std::vector<double> reach = {0.9};
  const std::vector<SpeculationCandidates> some(3, {.reach = reach});
  EXPECT_EQ(ShareSpeculation(parts, some, PassCost(costs), {.max_nodes = 0}).nodes, std::vector<int>(3));
  EXPECT_DEATH((void)ShareSpeculation(parts, {}, PassCost(costs), {}), "candidates");
}

}  // namespace
}  // namespace longspec
