// SPDX-License-Identifier: Apache-2.0
//
// One cell of an evaluation: a method on prompts of one family, context length and temperature, beside plain
// decoding of the same prompts in the same process. Kept as one JSON line. Ratios are computed from sums of
// the items.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/statistics.h"
#include "decode/stats.h"
#include "eval/quality.h"
#include "longspec/status.h"

namespace longspec {

// Distinct 4-gram share below which a text counts as looping.
inline constexpr double kLoops = 0.5;
// From this share on a text says little twice: drafters get nothing from repetition.
inline constexpr double kHardlyRepeats = 0.8;

// One prompt. Counts and times sum over its repetitions, plain decoding's too; `ms` and `plain_ms` are as
// many times the sum of median turns.
struct EvalItem {
  std::string id;
  std::string subset = {};                // of its family; empty: the family has none
  int64_t prompt_tokens = 0, tokens = 0;  // per run
  int64_t steps = 0, proposed = 0, drafted = 0, accepted = 0;
  double ms = 0, plain_ms = 0;                                       // plain_ms: of as many tokens
  double draft_ms = 0, target_ms = 0, verify_ms = 0, commit_ms = 0;  // of rounds
  // What reading the prompt takes, the draft's reading included, and what plain decoding takes for it; older
  // files have one number for both.
  double prompt_ms = 0, plain_prompt_ms = 0;
  uint64_t draft_bytes = 0;  // held for drafting at the end; the most of any run
  uint64_t kv_bytes = 0;     // of the sequence's own keys and values in memory at the end; older files have 0
  std::vector<int64_t> drafted_at, accepted_at;  // [i]: rounds that drafted, accepted depth i + 1
  std::vector<double> acceptance_per_position;   // their quotients; older files have only these
  bool identical = false;                        // all runs, plain and not, gave the same tokens
  // Of a method that may write another text: what it is beside plain decoding's (SpecPV, table 2). Tokens
  // that were checked by the whole cache, and those of them that it would have chosen otherwise.
  bool approximate = false;
  double rouge_l_to_exact = 0;
  int64_t checked = 0, differing = 0;
  double distinct_4gram = 1;
  Quality quality;
  std::vector<std::pair<std::string, int64_t>> decisions;
  std::string last_decision;
  bool dice = false;                                      // of SpeculativeStats, as is `uses`
  std::vector<std::pair<std::string, std::string>> uses;  // older files have neither

  bool loops() const { return distinct_4gram < kLoops; }
  double speedup() const { return ms > 0 ? plain_ms / ms : 0; }
  double mean_acceptance_length() const { return MeanAcceptanceLength(accepted, steps); }
};

struct CellKey {
  std::string family, method;
  int length = 0;
  double temperature = 0;
  bool operator==(const CellKey&) const = default;

  // Always drafts the same number of tokens: one drafter, and no adaptive policy.
  bool is_fixed() const;
};

struct Cell {
  CellKey key;
  int runs = 1;  // generations per prompt and side
  std::vector<EvalItem> items;
};

// Sums over items. Micro means are quotients of sums, so that long answers weigh more; macro means are means
// of the items' own quotients, so that each prompt counts once.
struct CellSums {
  int64_t approximate = 0, checked = 0, differing = 0;
  double rouge_l_to_exact = 0;  // sum, not mean
  int64_t prompts = 0, looping = 0, identical = 0, tokens = 0, steps = 0, drafted = 0, accepted = 0;
  double ms = 0, plain_ms = 0, draft_ms = 0, target_ms = 0, verify_ms = 0, commit_ms = 0;
  double prompt_ms = 0, plain_prompt_ms = 0;    // as often as there were runs
  double distinct_4gram = 0;                    // sum, not mean
  double speedups = 0, acceptance_lengths = 0;  // sums of the items' own
  uint64_t draft_bytes = 0, kv_bytes = 0;       // most, not sum
  std::vector<int64_t> drafted_at, accepted_at;

  void Add(const EvalItem& item, int runs);
  std::vector<double> acceptance_per_position() const;
  double speedup() const { return ms > 0 ? plain_ms / ms : 0; }
  double mean_acceptance_length() const { return MeanAcceptanceLength(accepted, steps); }
  double macro_speedup() const { return MeanOf(speedups); }
  double macro_acceptance_length() const { return MeanOf(acceptance_lengths); }
  double tokens_per_second() const { return api::PerSecond(tokens, ms); }
  double plain_tokens_per_second() const { return api::PerSecond(tokens, plain_ms); }

 private:
  double MeanOf(double sum) const { return prompts > 0 ? sum / static_cast<double>(prompts) : 0; }
};

// Adds `more` at each position; `sums` grows to hold them.
void AddByPosition(const std::vector<int64_t>& more, std::vector<int64_t>& sums);

nlohmann::ordered_json CellJson(const Cell& cell);
// kCorrupt for anything CellJson did not write.
Result<Cell> ParseCell(std::string_view line);

}  // namespace longspec
