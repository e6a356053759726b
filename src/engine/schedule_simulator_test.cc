// SPDX-License-Identifier: Apache-2.0
//
// Many rounds: what docs/scheduling.md promises, on simulated machines, and the table it shows.
#include "engine/testing/schedule_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>

#include "base/print.h"
#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "policy/share_speculation.h"

namespace longspec::testing {
namespace {

constexpr int kAmple = 1000;  // chunks

bool AllEnded(const SimulationResult& result) {
  return std::all_of(result.answers.begin(), result.answers.end(),
                     [](const SimulatedAnswer& answer) { return answer.end_ms > 0; });
}

// Checks of every round that the oldest that runs goes on, and counts for how many rounds.
class OldestGoesOn {
 public:
  void operator()(const RoundState& state, const RoundPlan& plan) {
    const auto oldest = std::find_if(state.sequences.begin(), state.sequences.end(),
                                     [](const SequenceState& s) { return s.running; });
    if (oldest == state.sequences.end()) return;
    const auto place = static_cast<int>(oldest - state.sequences.begin());
    ASSERT_EQ(std::count(plan.preempt.begin(), plan.preempt.end(), place), 0);
    const bool runs = std::any_of(plan.parts.begin(), plan.parts.end(),
                                  [&](const RoundPlan::Part& part) { return part.sequence == place; });
    ASSERT_TRUE(runs);
    rounds_ = oldest->id == id_ ? rounds_ + 1 : 1;
    id_ = oldest->id;
    most_rounds = std::max(most_rounds, rounds_);
  }
  int most_rounds = 0;

 private:
  int64_t id_ = -1;
  int rounds_ = 0;
};

// The pool holds the largest request and not one chunk more.
TEST(Schedule, EverybodyEndsWhereMemoryHoldsOneLongSequence) {
  const CostModel costs = FastMachine();
  for (const uint64_t seed : {1, 2, 3}) {
    const auto trace = PoissonTrace({.seed = seed,
                                     .requests = 40,
                                     .gap_ms = 500,
                                     .longest_prompt = 2000,
                                     .shortest_answer = 300,
                                     .longest_answer = 3000});
    int largest = 0;
    for (const SimulatedRequest& request : trace) {
      largest = std::max(largest, MostChunks(request.prompt, request.answer, 1 << 20));
    }
    OldestGoesOn oldest;
    const SimulationResult result =
        ScheduleSimulator(costs, {.parallel = 16}, largest).Run(trace, std::ref(oldest));
    EXPECT_TRUE(AllEnded(result));
    EXPECT_GT(result.preemptions, 0);
    // Nobody is the oldest for longer than it takes to compute and to answer row by row, far from it.
    EXPECT_LE(oldest.most_rounds, 2000 + 3000);
  }
}

// Answers so long that those who start together cannot all end together.
TEST(Schedule, EightLongAnswersUnderACap) {
  const CostModel costs = FastMachine();
  const std::vector<SimulatedRequest> trace(8, {.arrival_ms = 0, .prompt = 250, .answer = 3000});
  for (const int pool : {13, 20, 40}) {
    const SimulationResult result = ScheduleSimulator(costs, {.parallel = 8}, pool).Run(trace);
    EXPECT_TRUE(AllEnded(result)) << pool;
    EXPECT_GT(result.preemptions, 0) << pool;
    EXPECT_EQ(result.answers[0].preemptions, 0) << pool;
    EXPECT_EQ(result.tokens, 8 * 3000);
  }
  EXPECT_EQ(ScheduleSimulator(costs, {.parallel = 8}, 8 * 13).Run(trace).preemptions, 0);
}

TEST(Schedule, SharedDocumentsAreComputedOnce) {
  const CostModel costs = FastMachine();
  const auto trace =
      PoissonTrace({.seed = 5, .requests = 40, .gap_ms = 800, .longest_prompt = 4000, .documents = 2});
  int64_t prompts = 0;
  for (const SimulatedRequest& request : trace) prompts += request.prompt;
  const SimulationResult roomy = ScheduleSimulator(costs, {.parallel = 8}, kAmple, true).Run(trace);
  EXPECT_TRUE(AllEnded(roomy));
  EXPECT_GT(roomy.reused, prompts / 3);
  EXPECT_EQ(roomy.rows + roomy.reused,
            prompts + roomy.tokens - 40);  // the last token of an answer is not computed
  for (const int pool : {20, 24, 40}) {
    OldestGoesOn oldest;
    const SimulationResult result =
        ScheduleSimulator(costs, {.parallel = 8}, pool, true).Run(trace, std::ref(oldest));
    EXPECT_TRUE(AllEnded(result)) << pool;
    EXPECT_GT(result.reused, 0) << pool;
  }
}

// More short prompts than the machine can do, without end, and a long one among them. `patience` decides how
// many of them pass it; were it without limit, all would.
class LongAmongShort : public ::testing::Test {
 protected:
  static constexpr int kLong = 6000, kShort = 300, kBehind = 600;

  static std::vector<SimulatedRequest> Trace() {
    std::vector<SimulatedRequest> trace = {{.arrival_ms = 0, .prompt = kShort, .answer = 2},
                                           {.arrival_ms = 1, .prompt = kLong, .answer = 20}};
    for (int i = 0; i < kBehind; ++i) {
      trace.push_back({.arrival_ms = 2 + 100.0 * i, .prompt = kShort, .answer = 2});
    }
    return trace;
  }
  // Of the short ones, how many have their first token before the long one has.
  static int Passed(const SimulationResult& result) {
    const std::vector<SimulatedRequest> trace = Trace();
    const auto at = [&](size_t i) { return trace[i].arrival_ms + result.answers[i].first_token_ms; };
    int passed = 0;
    for (size_t i = 2; i < trace.size(); ++i) passed += at(i) < at(1) ? 1 : 0;
    return passed;
  }
};

TEST_F(LongAmongShort, ItsTurnComes) {
  const CostModel costs = FastMachine();
  const PassPart part = ChainPart(kLong, 0);
  const double alone = PassCost(costs).Ms({&part, 1});
  for (const double patience : {0.0, 1.0, 2.0, 4.0}) {
    const ScheduleOptions options{.parallel = 8, .patience = patience};
    const SimulationResult result = ScheduleSimulator(costs, options, kAmple).Run(Trace());
    EXPECT_TRUE(AllEnded(result));
    // Those that arrived while it had waited less than patience allows, and few that went beside it.
    EXPECT_LE(Passed(result), patience * alone / 100 + 8) << patience;
    EXPECT_GE(Passed(result), 0.5 * patience * alone / 100) << patience;
  }
  const SimulationResult endless =
      ScheduleSimulator(costs, {.parallel = 8, .patience = 1e6}, kAmple).Run(Trace());
  EXPECT_EQ(Passed(endless), kBehind);
}

// The promise itself, round by round: who arrives more than patience times a prompt's time alone after it
// takes no rows from it. A row of the oldest, which everyone is given, is not counted.
TEST(Schedule, NobodyIsPassedByThoseThatArriveMuchLater) {
  const CostModel costs = FastMachine();
  const PassCost cost(costs);
  const ScheduleOptions options{.parallel = 16};
  int n_passed = 0, n_held = 0;
  const auto check = [&](const RoundState& state, const RoundPlan& plan) {
    std::vector<int> rows(state.sequences.size());
    for (const RoundPlan::Part& part : plan.parts) rows[static_cast<size_t>(part.sequence)] = part.rows;
    for (size_t i = 0; i < rows.size(); ++i) {
      const SequenceState& s = state.sequences[i];
      const bool runs =
          s.running || std::count(plan.admit.begin(), plan.admit.end(), static_cast<int>(i)) > 0;
      if (!runs || rows[i] == s.missing) continue;
      const PassPart part = ChainPart(s.missing, s.context - s.missing);
      const double patience = options.patience * cost.Ms({&part, 1});
      for (size_t j = i + 1; j < rows.size(); ++j) {
        const SequenceState& later = state.sequences[j];
        if (later.missing == 1 || rows[j] == 0) continue;
        const bool may_pass = s.waited_ms - later.waited_ms < patience;
        ASSERT_TRUE(may_pass) << s.missing << " tokens waited for " << s.waited_ms << " ms, " << later.missing
                              << " for " << later.waited_ms;
        ++n_passed;
      }
      n_held += s.waited_ms > patience ? 1 : 0;
    }
  };
  const auto trace = PoissonTrace({.seed = 4, .requests = 60, .gap_ms = 1200});
  EXPECT_TRUE(AllEnded(ScheduleSimulator(costs, options, kAmple).Run(trace, check)));
  EXPECT_GT(n_passed, 20);
  EXPECT_GT(n_held, 20);
}

// The time between tokens is what decoding takes, and the budget.
TEST(Schedule, PromptsHoldUpAnswersByTheBudgetAtMost) {
  const CostModel costs = FastMachine();
  const PassCost cost(costs);
  for (const double prefill_ms : {30.0, 100.0}) {
    double slowest = 0, slowest_roots = 0;
    const auto check = [&](const RoundState& state, const RoundPlan& plan) {
      std::vector<PassPart> roots, guaranteed;
      for (size_t i = 0; i < plan.parts.size(); ++i) {
        const RoundPlan::Part& part = plan.parts[i];
        const SequenceState& s = state.sequences[static_cast<size_t>(part.sequence)];
        if (s.missing == 1) roots.push_back(plan.pass[i]);
        guaranteed.push_back(s.missing == 1 ? plan.pass[i] : ChainPart(1, s.context - s.missing));
      }
      if (roots.empty()) return;
      const double roots_ms = cost.Ms(roots);
      const double ms = cost.Ms(plan.pass);
      ASSERT_LE(ms, std::max(roots_ms + std::max(prefill_ms, 0.5 * roots_ms), cost.Ms(guaranteed)) + 1e-9);
      slowest = std::max(slowest, ms);
      slowest_roots = std::max(slowest_roots, roots_ms);
    };
    const auto trace = PoissonTrace({.seed = 6, .requests = 60, .gap_ms = 3000});
    const SimulationResult result =
        ScheduleSimulator(costs, {.parallel = 16, .prefill_ms = prefill_ms}, kAmple).Run(trace, check);
    std::vector<double> gaps;
    for (const SimulatedAnswer& answer : result.answers) {
      gaps.insert(gaps.end(), answer.gaps.begin(), answer.gaps.end());
    }
    EXPECT_LE(Quantile(gaps, 1), slowest + 1e-9);  // memory is ample: nobody is preempted
    EXPECT_LE(Quantile(gaps, 0.95), slowest_roots + std::max(prefill_ms, 0.5 * slowest_roots));
    EXPECT_GT(Quantile(gaps, 0.95), 0.8 * prefill_ms);  // it is used
  }
}

struct Machine {
  const char* name;
  CostModel costs;
  double gap_ms;  // between arrivals
};
struct Rules {
  const char* name;
  ScheduleOptions options;
};

std::string Row(const Machine& machine, const Rules& rules, int pool) {
  const auto trace = PoissonTrace({.seed = 2026, .requests = 120, .gap_ms = machine.gap_ms});
  const SimulationResult result = ScheduleSimulator(machine.costs, rules.options, pool).Run(trace);
  EXPECT_TRUE(AllEnded(result));
  std::vector<double> first, first_of_short, gaps, pauses, whole;
  for (size_t i = 0; i < trace.size(); ++i) {
    const SimulatedAnswer& answer = result.answers[i];
    first.push_back(answer.first_token_ms);
    if (trace[i].prompt < 1000) first_of_short.push_back(answer.first_token_ms);
    gaps.insert(gaps.end(), answer.gaps.begin(), answer.gaps.end());
    pauses.push_back(Quantile(answer.gaps, 1));
    whole.push_back(answer.end_ms);
  }
  const auto seconds = [](double ms) { return Print("%.*f", ms < 99950 ? ms < 9950 ? 2 : 1 : 0, ms / 1000); };
  std::string row = "| ";
  for (const std::string& cell :
       {std::string(machine.name), std::to_string(pool), std::string(rules.name), seconds(Mean(first)),
        seconds(Quantile(first, 0.95)), seconds(Quantile(first_of_short, 0.95)),
        seconds(Quantile(gaps, 0.95)), seconds(Quantile(pauses, 0.5)), seconds(Mean(whole)),
        Print("%.3g", 1000 * static_cast<double>(result.tokens) / result.ms)}) {
    row += cell + " | ";
  }
  row.pop_back();
  return row;
}

void ExpectInDocs(const std::string& table) {
  const std::string docs = testing::ReadText(testing::SourcePath("docs/scheduling.md"));
  EXPECT_NE(docs.find(table), std::string::npos) << "docs/scheduling.md shows another table than this one:\n"
                                                 << table;
}

TEST(Schedule, TheTableOfTheDocs) {
  constexpr double kNoLimit = 1e12;
  const Machine machines[] = {{"fast", FastMachine(), 3000}, {"slow", SlowMachine(), 230000}};
  const Rules all_rules[] = {
      {"whole prompts",
       {.parallel = 16, .batch_rows = 1 << 20, .prefill_ms = kNoLimit, .idle_ms = 0, .patience = 0}},
      {"512 rows", {.parallel = 16, .batch_rows = 512, .prefill_ms = kNoLimit, .idle_ms = 0, .patience = 0}},
      {"planned", {.parallel = 16}}};
  std::string table;
  for (const Machine& machine : machines) {
    for (const int pool : {16 * 34, 40}) {
      for (const Rules& rules : all_rules) table += Row(machine, rules, pool) + "\n";
    }
  }
  ExpectInDocs(table);
}

TEST(Schedule, TheTableOfMemoryInTheDocs) {
  const CostModel costs = FastMachine();
  const std::vector<SimulatedRequest> trace(8, {.arrival_ms = 0, .prompt = 250, .answer = 3000});
  std::string table;
  for (const int pool : {8 * 13, 64, 40, 26, 20, 13}) {
    const SimulationResult result = ScheduleSimulator(costs, {.parallel = 8}, pool).Run(trace);
    const int64_t once = 8 * (250 + 3000 - 1);
    table +=
        Print("| %d | %d | %.1f %% | %.0f |\n", pool, result.preemptions,
              100 * (static_cast<double>(result.rows) / static_cast<double>(once) - 1), result.ms / 1000);
  }
  ExpectInDocs(table);
}

// Of sequences that are easy to guess and hard in turn: nodes and speed of each kind, by either objective.
TEST(Schedule, TheTableOfGuessesInTheDocs) {
  const auto chances = [](double one) {
    std::vector<double> reach;
    for (int depth = 1; depth <= 16; ++depth) reach.push_back(std::pow(one, depth));
    return reach;
  };
  const std::vector<std::vector<double>> kinds = {chances(0.9), chances(0.5)};
  const Machine machines[] = {{"fast", FastMachine(), 0}, {"slow", SlowMachine(), 0}};
  std::string table;
  for (const Machine& machine : machines) {
    for (const int keys : {512, 4096}) {
      for (const size_t n : {2, 4, 8, 16}) {
        const PassCost cost(machine.costs);
        const std::vector<PassPart> parts(n, {.rows = 1, .keys = keys});
        std::vector<SpeculationCandidates> candidates(n);
        for (size_t i = 0; i < n; ++i) candidates[i].reach = kinds[i % 2];
        table += Print("| %s | %d | %zu |", machine.name, keys, n);
        for (const auto objective : {SpeculationObjective::kFairness, SpeculationObjective::kThroughput}) {
          const auto nodes = ShareSpeculation(parts, candidates, cost, {.objective = objective}).nodes;
          std::vector<PassPart> pass = parts;
          std::array<double, 2> mean_nodes{}, tokens{};  // of easy ones, of hard ones
          for (size_t i = 0; i < n; ++i) {
            pass[i].rows += nodes[i];
            const auto& reach = kinds[i % 2];
            const double share = 2.0 / static_cast<double>(n);
            mean_nodes[i % 2] += share * nodes[i];
            tokens[i % 2] += share * std::accumulate(reach.begin(), reach.begin() + nodes[i], 1.0);
          }
          const double slower = cost.Ms(pass) / cost.Ms(parts);
          table += Print(" %.1f, %.1f | %.2f, %.2f | %.2f |", mean_nodes[0], mean_nodes[1],
                         tokens[0] / slower, tokens[1] / slower, (tokens[0] + tokens[1]) / 2 / slower);
        }
        table += "\n";
      }
    }
  }
  ExpectInDocs(table);
}

}  // namespace
}  // namespace longspec::testing
