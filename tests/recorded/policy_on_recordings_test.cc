// SPDX-License-Identifier: Apache-2.0
//
// `auto` over recorded answers of the default model (families of long documents, 512 to 8,192 tokens of
// context, greedy and sampled), on machines whose rows cost what they were measured to cost, next to nothing,
// or as much as steps: never much slower than plain decoding, and near the best setting that could have been
// fixed with hindsight.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "eval/samples.h"
#include "longspec/stats.h"
#include "playback.h"

namespace longspec::testing {
namespace {

std::vector<Recording> ReadRecordings() {
  const auto text = ReadMaybeGzip(std::string(LONGSPEC_SOURCE_DIR) + "/tests/recorded/answers.jsonl.gz");
  EXPECT_TRUE(text.ok()) << text.status().message();
  if (!text.ok()) return {};
  std::istringstream lines(*text);
  std::vector<Recording> recordings;
  for (std::string json; std::getline(lines, json);) {
    const auto line = nlohmann::json::parse(json);
    for (const auto& answer : line["answers"]) {
      char name[80];
      std::snprintf(name, sizeof(name), "%s at %d, temperature %.1f",
                    line["family"].get<std::string>().c_str(), line["length"].get<int>(),
                    answer["temperature"].get<double>());
      recordings.push_back({.name = name,
                            .prompt = line["prompt"].get<std::vector<int32_t>>(),
                            .answer = answer["tokens"].get<std::vector<int32_t>>()});
    }
  }
  return recordings;
}

// A machine, as a table of costs over those of one row.
CostTable Machine(const std::vector<std::vector<double>>& times_one_row) {
  const std::vector<double> one_row = {5.7, 7.6, 10.3, 16.0};  // ms
  CostTable table{.rows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32}, .keys = {512, 2048, 4096, 8192}, .ms = {}};
  for (size_t row = 0; row < table.rows.size(); ++row) {
    for (size_t key = 0; key < table.keys.size(); ++key) {
      const auto& times = times_one_row[std::min(key, times_one_row.size() - 1)];
      table.ms.push_back(one_row[key] * times[row]);
    }
  }
  return table;
}

// Two cores of a Zen 3 with AVX2: docs/performance.md.
CostTable Measured() {
  return Machine({{1, 1.17, 1.30, 1.49, 1.90, 2.08, 2.62, 3.65, 4.77, 9.4},
                  {1, 1.25, 1.42, 1.62, 2.08, 2.30, 2.90, 4.10, 5.40, 10.8},
                  {1, 1.33, 1.66, 1.92, 2.48, 2.68, 3.28, 4.68, 6.10, 12.2},
                  {1, 1.32, 1.66, 1.90, 2.40, 2.62, 3.22, 4.55, 5.90, 11.8}});
}
CostTable CheapRows() { return Machine({{1, 1.02, 1.03, 1.05, 1.08, 1.10, 1.15, 1.25, 1.4, 2.0}}); }
CostTable DearRows() { return Machine({{1, 2, 3, 4, 5, 6, 8, 12, 16, 32}}); }

SpeculationOptions Fixed(const std::string& type, int n_max) {
  SpeculationOptions options{.type = type};
  options.policy = "fixed";
  options.draft_n_max = n_max;
  return options;
}

struct Summary {
  double least = 1e9, mean = 0;              // speedup of auto over plain
  double least_share = 1e9, mean_share = 0;  // of the best fixed setting, plain decoding included
  double near = 0;                           // share of recordings within 5 % of it
  std::string slowest, furthest;             // recordings
};

// One engine answers all recordings, one after the other.
Summary PlayAll(const CostTable& table) {
  static const std::vector<Recording> recordings = ReadRecordings();
  const std::vector<SpeculationOptions> fixed = {Fixed("suffix", 1),  Fixed("suffix", 3), Fixed("suffix", 8),
                                                 Fixed("suffix", 16), Fixed("ngram", 3),  Fixed("ngram", 8)};
  const CostModel machine(table);
  AdaptiveMemory memory{.costs = CostModel(table), .acceptance = {}};
  Summary all;
  std::printf("  auto   best fixed  rounds drafted accepted distinct 4-grams\n");
  for (const Recording& recording : recordings) {
    const Played played = Play(recording, {.type = "auto"}, machine, &memory);
    double best = 1;
    for (const SpeculationOptions& options : fixed)
      best = std::max(best, Play(recording, options, machine, nullptr).speedup());
    const double share = played.speedup() / best;
    std::printf("  %.3f  %.3f (%3.0f %%) %5d %6d %6d  %.2f  %s\n", played.speedup(), best, 100 * share,
                static_cast<int>(played.rounds), static_cast<int>(played.drafted),
                static_cast<int>(played.accepted), DistinctNgramShare(recording.answer),
                recording.name.c_str());
    if (played.speedup() < all.least) {
      all.least = played.speedup();
      all.slowest = recording.name;
    }
    if (share < all.least_share) {
      all.least_share = share;
      all.furthest = recording.name;
    }
    const auto n = static_cast<double>(recordings.size());
    all.mean += played.speedup() / n;
    all.mean_share += share / n;
    all.near += (share >= 0.95 ? 1 : 0) / n;
  }
  std::printf("  mean %.3f, %.3f of the best fixed setting, within 5 %% of it in %.0f %%\n", all.mean,
              all.mean_share, 100 * all.near);
  EXPECT_GE(recordings.size(), 40U);
  return all;
}

TEST(PolicyOnRecordings, WhereRowsCostWhatTheyWereMeasuredToCost) {
  const Summary all = PlayAll(Measured());
  EXPECT_GT(all.least, 0.98) << all.slowest;
  EXPECT_GT(all.near, 0.9);
  EXPECT_GT(all.least_share, 0.9) << all.furthest;
  EXPECT_GT(all.mean_share, 1.0);
}

TEST(PolicyOnRecordings, WhereRowsAreNearlyFree) {
  const Summary all = PlayAll(CheapRows());
  EXPECT_GT(all.least, 1.0) << all.slowest;
  EXPECT_GT(all.near, 0.95);
  EXPECT_GT(all.least_share, 0.9) << all.furthest;
  EXPECT_GT(all.mean_share, 1.05);
}

TEST(PolicyOnRecordings, WhereARowCostsAStep) {
  const Summary all = PlayAll(DearRows());
  EXPECT_GT(all.least, 0.99) << all.slowest;
}

}  // namespace
}  // namespace longspec::testing
