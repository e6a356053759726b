// SPDX-License-Identifier: Apache-2.0
//
// What an editor asks for, as Qwen2.5-Coder-1.5B answered it (record_edits.py): suggestions at the cursor, a
// file that is copied with three changes, windows that are written again. `auto` on a machine whose rows cost
// what they cost that model, beside what could be had at best by who always knew which of all the texts at
// hand goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "playback.h"
#include "recordings.h"

namespace longspec::testing {
namespace {

// Rounds of somebody who in each chooses the best of all that stands in the texts at hand, as many tokens as
// make the whole answer fastest.
struct Bound {
  int64_t rounds = 0;
  double ms = 0;
};

std::vector<int32_t> TextsOf(const Recording& recording) {
  std::vector<int32_t> texts = recording.prompt;
  const auto add = [&texts](const std::vector<int32_t>& more) {
    texts.push_back(-1);
    texts.insert(texts.end(), more.begin(), more.end());
  };
  add(recording.prediction.tokens);
  for (const LikelyBeginning& beginning : recording.prediction.beginnings) add(beginning.tokens);
  texts.push_back(-1);
  return texts;
}

// How many of the tokens from each one on stand in the texts, or in the answer before it.
std::vector<int> Copied(const Recording& recording) {
  std::vector<int32_t> texts = TextsOf(recording);
  const auto n_before = texts.size();
  texts.insert(texts.end(), recording.answer.begin(), recording.answer.end());
  std::vector<int> copied(recording.answer.size());
  for (size_t i = 0; i < recording.answer.size(); ++i) {
    for (size_t from = 0; from < n_before + i; ++from) {
      size_t n = 0;
      while (i + n < recording.answer.size() && from + n < n_before + i &&
             texts[from + n] == recording.answer[i + n])
        ++n;
      copied[i] = std::max(copied[i], static_cast<int>(n));
    }
  }
  return copied;
}

Bound BoundOf(const Recording& recording, const CostModel& machine, bool fewest_rounds) {
  const std::vector<int> copied = Copied(recording);
  const auto n = static_cast<int>(copied.size());
  std::vector<Bound> from(copied.size() + 1, {.ms = std::numeric_limits<double>::infinity()});
  from.back() = {};
  for (int i = n - 1; i >= 0; --i) {
    const auto context = static_cast<int>(recording.prompt.size()) + i;
    for (int rows = 0; rows <= std::min(32, copied[static_cast<size_t>(i)]); ++rows) {
      const Bound& rest = from[static_cast<size_t>(std::min(n, i + rows + 1))];
      const Bound whole = {.rounds = rest.rounds + 1, .ms = rest.ms + machine.TargetMs(rows + 1, context)};
      Bound& best = from[static_cast<size_t>(i)];
      const bool better = fewest_rounds ? best.rounds == 0 || whole.rounds < best.rounds : whole.ms < best.ms;
      if (better) best = whole;
    }
  }
  return from.front();
}

struct FamilySum {
  int answers = 0;
  int64_t tokens = 0, rounds = 0, rows = 0, at_least = 0, at_best = 0;
  double ms = 0, plain_ms = 0, at_best_ms = 0;
  std::string longest;

  double tokens_a_round() const { return static_cast<double>(tokens) / static_cast<double>(rounds); }
};

std::map<std::string, FamilySum> PlayAll(const char* name, const CostTable& table) {
  static const std::vector<Recording> recordings = ReadRecordings("edits.jsonl.gz");
  const CostModel machine(table);
  AdaptiveMemory memory{.costs = CostModel(table), .drafters = {}};
  std::map<std::string, FamilySum> sums;
  for (const Recording& recording : recordings) {
    SpeculationOptions options{.type = "auto"};
    options.prediction = recording.prediction;
    const Played played = Play(recording, options, machine, &memory, ShippedCoderPrior());
    const std::string family = recording.name.substr(0, recording.name.find(" at "));
    const Bound least = BoundOf(recording, machine, true), best = BoundOf(recording, machine, false);
    for (const std::string& of : {family, family.substr(0, family.find(','))}) {
      FamilySum& sum = sums[of];
      ++sum.answers;
      sum.tokens += static_cast<int64_t>(recording.answer.size());
      sum.rounds += played.rounds;
      sum.rows += played.rounds + played.drafted;
      sum.at_least += least.rounds;
      sum.at_best += best.rounds;
      sum.ms += played.ms;
      sum.plain_ms += played.plain_ms;
      sum.at_best_ms += best.ms;
      if (of == family && family.find(',') == std::string::npos) {
        sum.longest += " " + std::to_string(played.rounds) + "/" + std::to_string(recording.answer.size());
      }
      if (family.find(',') == std::string::npos) break;
    }
  }
  std::printf("  %s\n  %-22s %7s %6s %6s %5s %12s %6s %10s | %s\n", name, "", "answers", "tokens", "rounds",
              "rows", "tokens/round", "times", "best times", "at best: tokens/round, fewest rounds");
  for (const auto& [family, sum] : sums) {
    std::printf("  %-22s %7d %6d %6d %5d %12.2f %6.2f %10.2f | %.2f, %.2f %s\n", family.c_str(), sum.answers,
                static_cast<int>(sum.tokens), static_cast<int>(sum.rounds), static_cast<int>(sum.rows),
                sum.tokens_a_round(), sum.plain_ms / sum.ms, sum.plain_ms / sum.at_best_ms,
                static_cast<double>(sum.tokens) / static_cast<double>(sum.at_best),
                static_cast<double>(sum.tokens) / static_cast<double>(sum.at_least), sum.longest.c_str());
  }
  return sums;
}

// What they were when this was written, a little rounded: keys in the middle of a line, copied files, and
// windows that are written again.
void ExpectAtLeast(std::map<std::string, FamilySum> sums, double keys, double copies, double windows) {
  EXPECT_GE(sums["middle, a key"].tokens_a_round(), keys);
  EXPECT_GE(sums["copy"].tokens_a_round(), copies);
  EXPECT_GE(sums["next edit by people"].tokens_a_round(), windows);
  const FamilySum& people = sums["next edit by people"];
  EXPECT_LE(people.rounds, 25 * people.answers);  // of 21 lines each
}

TEST(Edits, OnTwoCoresWithAvx2) {
  ExpectAtLeast(PlayAll("two cores with AVX2", MeasuredCoder()), 2.5, 11, 11.2);
}
TEST(Edits, OnTwoCoresWithAvx512) {
  if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP();
  ExpectAtLeast(PlayAll("two cores with AVX-512", MeasuredAvx512()), 3, 13, 12.8);
}

}  // namespace
}  // namespace longspec::testing
