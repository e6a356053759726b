// SPDX-License-Identifier: Apache-2.0
//
// What the dice and the prior are worth, over recorded answers of SmolLM2: accepted length of ppm's
// trees, and the speed of `auto` on machines that are tables of costs, with neither, each and both, by
// temperature. Answers that repeat themselves (distinct 4-grams below 0.8) are counted apart.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "draft_text/priors.h"
#include "longspec/stats.h"
#include "playback.h"
#include "recordings.h"

namespace longspec::testing {
namespace {

constexpr double kVaried = 0.8;    // distinct 4-gram share
constexpr int64_t kEnough = 1000;  // tokens of a group that says something

struct Setting {
  const char* name;
  bool dice, prior;

  SpeculationOptions Apply(SpeculationOptions options) const {
    options.dice = dice;
    options.ppm.prior = prior
                            ? (std::getenv("LONGSPEC_PRIOR") != nullptr ? std::getenv("LONGSPEC_PRIOR") : "")
                            : std::string(kNoPrior);
    return options;
  }
};
constexpr std::array<Setting, 4> kSettings = {
    {{"neither", false, false}, {"dice", true, false}, {"prior", false, true}, {"both", true, true}}};

struct Sum {
  double ms = 0, plain_ms = 0;
  int64_t rounds = 0, accepted = 0, tokens = 0;

  void Add(const Played& played, size_t n_tokens) {
    ms += played.ms;
    plain_ms += played.plain_ms;
    rounds += played.rounds;
    accepted += played.accepted;
    tokens += static_cast<int64_t>(n_tokens);
  }
  double length() const { return 1 + static_cast<double>(accepted) / static_cast<double>(rounds); }
  double speedup() const { return plain_ms / ms; }
};

// "0.7", "1.0 unfiltered", ...; those that repeat themselves apart.
std::string GroupOf(const Recording& recording) {
  const std::string of = recording.name.substr(recording.name.find("temperature") + 12);
  return of + (DistinctNgramShare(recording.answer) < kVaried ? ", repeating" : "");
}

using Sums = std::map<std::string, std::array<Sum, kSettings.size()>>;

Sums PlayAll(const SpeculationOptions& options, const CostTable& table) {
  static const std::vector<Recording> recordings = ReadRecordings();
  const CostModel machine(table);
  std::array<AdaptiveMemory, kSettings.size()> memory;
  Sums sums;
  for (AdaptiveMemory& m : memory) m.costs = CostModel(table);
  for (const Recording& recording : recordings) {
    for (size_t i = 0; i < kSettings.size(); ++i) {
      const Played played = Play(recording, kSettings[i].Apply(options), machine, &memory[i], ShippedPrior());
      sums[GroupOf(recording)][i].Add(played, recording.answer.size());
    }
  }
  return sums;
}

void Print(const char* what, const Sums& sums, double (Sum::*figure)() const) {
  std::printf("%-44s", what);
  for (const Setting& setting : kSettings) std::printf(" %8s", setting.name);
  std::printf("\n");
  for (const auto& [group, by_setting] : sums) {
    std::printf("  temperature %-24s %5d", group.c_str(), static_cast<int>(by_setting[0].tokens));
    for (const Sum& sum : by_setting) std::printf(" %8.3f", (sum.*figure)());
    std::printf("\n");
  }
}

SpeculationOptions Fixed(int n_nodes) {
  SpeculationOptions options{.type = "ppm"};
  options.policy = "fixed";
  options.draft_n_max = n_nodes;
  options.ppm.min_prob = 1e-3F;
  return options;
}

// What sanitizers could find here, PolicyOnRecordings and the drafters' own tests find.
bool SkipsSlow() { return std::getenv("LONGSPEC_SKIP_SLOW") != nullptr; }

TEST(DiceAndPrior, TreesHoldMore) {
  if (SkipsSlow()) GTEST_SKIP();
  for (const int n_nodes : {1, 3, 7}) {
    const Sums sums = PlayAll(Fixed(n_nodes), MeasuredAvx512());
    const std::string what = "tokens a round, ppm, " + std::to_string(n_nodes) + " nodes; tokens played";
    Print(what.c_str(), sums, &Sum::length);
    for (const auto& [group, by_setting] : sums) {
      if (group.find("repeating") != std::string::npos || by_setting[0].tokens < kEnough) continue;
      const auto length = [&sum = by_setting](size_t i) { return sum[i].length(); };
      EXPECT_GT(length(3), length(0) * (n_nodes == 1 ? 1.02 : 1.05)) << group << ", " << n_nodes;
      if (group.starts_with("0.0")) {
        EXPECT_EQ(length(3), length(2));  // nothing is drawn, so there are no dice
      } else if (n_nodes >= 3) {
        EXPECT_GT(length(3), length(2)) << group << ", " << n_nodes;
      }
    }
  }
}

TEST(DiceAndPrior, AutoIsFaster) {
  if (SkipsSlow()) GTEST_SKIP();
  const SpeculationOptions automatic{.type = "auto"};
  const Sums avx512 = PlayAll(automatic, MeasuredAvx512());
  Print("auto over plain decoding, AVX-512's costs", avx512, &Sum::speedup);
  const Sums avx2 = PlayAll(automatic, Measured());
  Print("auto over plain decoding, AVX2's costs", avx2, &Sum::speedup);
  for (const Sums* sums : {&avx512, &avx2}) {
    for (const auto& [group, by_setting] : *sums) {
      if (by_setting[0].tokens < kEnough) continue;
      EXPECT_GT(by_setting[3].speedup(), 0.995 * by_setting[0].speedup()) << group;
    }
  }
}

}  // namespace
}  // namespace longspec::testing
