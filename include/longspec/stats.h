// SPDX-License-Identifier: Apache-2.0
//
// Statistics of one generation. Field names follow llama.cpp's `timings` and vLLM's speculative metrics.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace longspec {

struct Timings {
  int64_t cache_n = 0;   // prompt tokens found in the session's cache
  int64_t prompt_n = 0;  // prompt tokens evaluated
  double prompt_ms = 0;
  double prompt_draft_ms = 0;  // of prompt_ms: what the drafter took to read the prompt
  int64_t predicted_n = 0;     // tokens generated
  double predicted_ms = 0;
  int64_t draft_n = 0;           // proposed tokens verified
  int64_t draft_n_accepted = 0;  // of them, accepted
};

// A share of the drafted tokens: of one drafter, or at one range of context lengths.
struct AcceptanceCounts {
  std::string name;   // "ngram"; "0-1K", "1K-2K", ...
  int64_t steps = 0;  // rounds; 0 where they are not counted
  int64_t drafted = 0, accepted = 0;
  double target_ms = 0;
};

struct SpeculativeStats {
  std::string type;
  int64_t steps = 0;                  // verification rounds
  double mean_acceptance_length = 0;  // 1 + accepted / steps
  std::vector<double>
      acceptance_per_position;  // [i]: rounds that accepted depth i + 1 / rounds that drafted it
  std::vector<int64_t> drafted_at, accepted_at;                      // [i]: these rounds
  double draft_ms = 0, target_ms = 0, verify_ms = 0, commit_ms = 0;  // of these rounds
  int64_t proposed = 0;      // nodes proposed; draft_n of Timings counts those verified
  uint64_t draft_bytes = 0;  // held to draft for this sequence when it ended: indices, caches, buffers; not a
                             // draft model's weights
  std::string policy;        // "fixed" or "adaptive"
  std::string last_decision;                               // of the policy, with its reason, in words
  std::vector<std::pair<std::string, int64_t>> decisions;  // rounds by decision
  std::string costs;  // adaptive: where the costs of forward passes come from; else empty
  std::vector<AcceptanceCounts> by_drafter, by_context;
  bool dice = false;  // drafted with the random numbers that chose the tokens; never at temperature 0
  // What drafters used, as name and value: ("prior", "models/priors/x.ngrams, 2000000 pairs").
  std::vector<std::pair<std::string, std::string>> uses;
  bool lossless = true;  // "exactness" in JSON: "lossless" or "approximate"
  std::string notice;    // what the drafter has to say, such as why it stopped proposing; or empty
};

// Of an answer that a part of the cache chose (PartialVerificationOptions).
struct PartialVerificationStats {
  bool enabled = false;
  int64_t checked = 0;    // tokens that a part chose and the whole cache was asked about afterwards
  int64_t differing = 0;  // of them, those that the whole cache would have chosen otherwise
  int64_t refreshes = 0;
  uint64_t bytes = 0;  // of the part
};

// Distinct 4-grams / 4-grams of a token sequence; 1 for fewer than four tokens. Below about 0.5 the text
// loops, which flatters every drafter.
double DistinctNgramShare(const std::vector<int32_t>& tokens, int n = 4);

}  // namespace longspec
