// SPDX-License-Identifier: Apache-2.0
//
// What a generation did, as raw counts and milliseconds; every ratio a user sees derives from these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace longspec {

// 1 + accepted / steps: the bonus token counts (vLLM, llama.cpp). 0 before the first step.
inline double MeanAcceptanceLength(int64_t accepted, int64_t steps) {
  return steps > 0 ? 1.0 + static_cast<double>(accepted) / static_cast<double>(steps) : 0.0;
}

// accepted / drafted at each position, of which `accepted` may lack the last; 0 where nothing was drafted.
inline std::vector<double> AcceptancePerPosition(const std::vector<int64_t>& drafted,
                                                 const std::vector<int64_t>& accepted) {
  std::vector<double> rates;
  for (size_t i = 0; i < drafted.size(); ++i) {
    const double n = i < accepted.size() ? static_cast<double>(accepted[i]) : 0.0;
    rates.push_back(drafted[i] == 0 ? 0.0 : n / static_cast<double>(drafted[i]));
  }
  return rates;
}

struct ContextCounts {
  int64_t steps = 0, drafted = 0, accepted = 0;
  double target_ms = 0;
};

struct DecodeStats {
  int64_t prompt_tokens = 0;         // prefilled by this decoder (what the cache already held is not counted)
  int64_t steps = 0;                 // verification rounds
  int64_t committed = 0;             // tokens committed by rounds
  int64_t proposed = 0;              // nodes proposed
  int64_t drafted = 0;               // proposed nodes that were verified
  int64_t accepted = 0;              // of them, accepted
  std::vector<int64_t> drafted_at;   // [depth - 1]: rounds that verified a node at this depth
  std::vector<int64_t> accepted_at;  // [depth - 1]: rounds that accepted one
  std::vector<int64_t> drafted_by;   // [source]: verified nodes, by the drafter that proposed them
  std::vector<int64_t> accepted_by;  // [source]: of them, accepted
  std::vector<ContextCounts> contexts;  // [ContextBucket(committed tokens before the round)]
  double prefill_ms = 0, draft_ms = 0, target_ms = 0, verify_ms = 0, commit_ms = 0;

  double mean_acceptance_length() const { return MeanAcceptanceLength(accepted, steps); }
};

}  // namespace longspec
