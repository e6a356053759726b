// SPDX-License-Identifier: Apache-2.0
//
// `auto` over recorded answers of SmolLM2 (families of long documents, 512 to 8,192 tokens of
// context, greedy and sampled), with the prior that ships and with dice, on machines whose rows cost what
// they were measured to cost, next to nothing, or as much as steps: never much slower than plain decoding,
// and near the best setting that could have been fixed with hindsight. LONGSPEC_RECORDED names another file
// of recordings (pack_answers.py makes them).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "longspec/stats.h"
#include "playback.h"
#include "recordings.h"

namespace longspec::testing {
namespace {

SpeculationOptions Fixed(const std::string& type, int n_max) {
  SpeculationOptions options{.type = type};
  options.policy = "fixed";
  options.draft_n_max = n_max;
  return options;
}

const std::vector<SpeculationOptions>& FixedSettings() {
  static const std::vector<SpeculationOptions> settings = {
      Fixed("suffix", 1), Fixed("suffix", 2),  Fixed("suffix", 3), Fixed("suffix", 5),
      Fixed("suffix", 8), Fixed("suffix", 16), Fixed("ppm", 2),    Fixed("ppm", 3),
      Fixed("ppm", 8),    Fixed("ngram", 3),   Fixed("ngram", 8)};
  return settings;
}

// Recordings of one family, length and temperature, or a single one.
struct Cell {
  int n = 0;
  double plain_ms = 0, auto_ms = 0;
  std::vector<double> fixed_ms = std::vector<double>(FixedSettings().size());

  void Add(const Cell& other) {
    n += other.n;
    plain_ms += other.plain_ms;
    auto_ms += other.auto_ms;
    for (size_t i = 0; i < fixed_ms.size(); ++i) fixed_ms[i] += other.fixed_ms[i];
  }
  double speedup() const { return plain_ms / auto_ms; }
  // Plain decoding is a fixed setting too.
  double best_fixed() const { return plain_ms / std::min(plain_ms, *std::ranges::min_element(fixed_ms)); }
  double share() const { return speedup() / best_fixed(); }
};

struct Summary {
  int n = 0;
  double least = 1e9, mean = 0;              // speedup of auto over plain
  double least_share = 1e9, mean_share = 0;  // of the best fixed setting
  double near = 0;                           // share of cells within 5 % of it
  std::string slowest, furthest;             // cells

  void Add(const std::string& name, const Cell& cell) {
    if (cell.speedup() < least) {
      least = cell.speedup();
      slowest = name;
    }
    if (cell.share() < least_share) {
      least_share = cell.share();
      furthest = name;
    }
    const double weight = 1.0 / ++n;
    mean += (cell.speedup() - mean) * weight;
    mean_share += (cell.share() - mean_share) * weight;
    near += ((cell.share() >= 0.95 ? 1 : 0) - near) * weight;
  }
  void Print(const char* of) const {
    std::printf(
        "  %d %s: mean %.3f, least %.3f; %.3f of the best fixed setting, least %.3f, within 5 %% in %.0f "
        "%%\n",
        n, of, mean, least, mean_share, least_share, 100 * near);
  }
};

struct Summaries {
  Summary answers, cells;
};

// One engine answers all recordings, one after the other.
Summaries PlayAll(const CostTable& table) {
  static const std::vector<Recording> recordings = ReadRecordings();
  const CostModel machine(table);
  AdaptiveMemory memory{.costs = CostModel(table), .drafters = {}};
  std::map<std::string, Cell> cells;
  Summaries all;
  std::printf("  auto   best fixed  rounds drafted accepted distinct 4-grams\n");
  for (const Recording& recording : recordings) {
    const Played played = Play(recording, {.type = "auto"}, machine, &memory, ShippedPrior());
    Cell answer{.n = 1, .plain_ms = played.plain_ms, .auto_ms = played.ms};
    for (size_t i = 0; i < answer.fixed_ms.size(); ++i)
      answer.fixed_ms[i] = Play(recording, FixedSettings()[i], machine, nullptr, ShippedPrior()).ms;
    std::printf("  %.3f  %.3f (%3.0f %%) %5d %6d %6d  %.2f  %s\n", answer.speedup(), answer.best_fixed(),
                100 * answer.share(), static_cast<int>(played.rounds), static_cast<int>(played.drafted),
                static_cast<int>(played.accepted), DistinctNgramShare(recording.answer),
                recording.name.c_str());
    all.answers.Add(recording.name, answer);
    cells[recording.name].Add(answer);
  }
  for (const auto& [name, cell] : cells) all.cells.Add(name, cell);
  all.answers.Print("answers");
  all.cells.Print("cells");
  EXPECT_GE(recordings.size(), 40U);
  return all;
}

TEST(PolicyOnRecordings, WhereRowsCostWhatTheyWereMeasuredToCost) {
  const auto [answers, cells] = PlayAll(Measured());
  EXPECT_GT(answers.least, 0.96) << answers.slowest;
  EXPECT_GT(answers.near, 0.85);
  EXPECT_GT(answers.least_share, 0.85) << answers.furthest;
  EXPECT_GT(answers.mean_share, 0.99);
  EXPECT_GT(cells.near, 0.85);
  EXPECT_GT(cells.least, 0.98) << cells.slowest;
}

TEST(PolicyOnRecordings, WhereRowsCostWhatTheyCostWithAvx512) {
  if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP();
  const auto [answers, cells] = PlayAll(MeasuredAvx512());
  EXPECT_GT(answers.least, 0.98) << answers.slowest;
  EXPECT_GT(answers.near, 0.85);
  EXPECT_GT(answers.least_share, 0.85) << answers.furthest;
  EXPECT_GT(answers.mean_share, 0.99);
  EXPECT_GT(cells.least, 0.98) << cells.slowest;
}

TEST(PolicyOnRecordings, WhereRowsAreNearlyFree) {
  if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP();
  const Summary answers = PlayAll(CheapRows()).answers;
  EXPECT_GT(answers.least, 1.0) << answers.slowest;
  EXPECT_GT(answers.near, 0.9);
  EXPECT_GT(answers.least_share, 0.9) << answers.furthest;
  EXPECT_GT(answers.mean_share, 1.01);
}

TEST(PolicyOnRecordings, WhereARowCostsAStep) {
  const Summary answers = PlayAll(DearRows()).answers;
  EXPECT_GT(answers.least, 0.99) << answers.slowest;
}

}  // namespace
}  // namespace longspec::testing
