// SPDX-License-Identifier: Apache-2.0
//
// A generation reduced to what must not change: its tokens, and a hash of the logits each was drawn from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/loaded_model.h"
#include "draft/drafter.h"
#include "longspec/options.h"

namespace longspec {

struct Trace {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> logits_hash;  // per token: of the bits of its row of logits
  int64_t drafted = 0;                // proposed tokens that were verified
  double mean_acceptance_length = 0;
  std::vector<std::pair<std::string, std::string>> uses;  // of Drafter

  bool operator==(const Trace& other) const {
    return tokens == other.tokens && logits_hash == other.logits_hash;
  }
};

struct TraceOptions {
  SamplingOptions sampling;   // with a seed
  int draft_n_max = 8;        // at most kMostDrafted
  bool adaptive = false;      // the policy; else fixed
  bool dice = true;           // the drafter may use the sampler's random numbers
  bool reads_prompt = false;  // the drafter reads what passes compute: the whole prompt is computed for it
};

// Makes the drafter of one run, for the cache it will read.
using DrafterFactory = std::function<Result<std::unique_ptr<Drafter>>(const DraftContext&)>;

// Generations after one prompt. The first one prefills it; those after it go back to it in the same cache, so
// that a long prompt is evaluated once. Not thread-safe.
class Recorder {
 public:
  static constexpr int kMostDrafted = 40;

  // Borrows the model, which outlives it.
  Recorder(LoadedModel& model, std::vector<int32_t> prompt, int n_predict, int prefill_chunk);

  // `draft_models` may be null.
  Result<Trace> Record(const DrafterFactory& make_drafter, const TraceOptions& options,
                       DraftModels* draft_models = nullptr);

 private:
  LoadedModel& model_;
  const std::vector<int32_t> prompt_;
  const int n_predict_;
  const int prefill_chunk_;
  const std::unique_ptr<KvCache> cache_;
};

// One of several generations that share their passes.
struct TogetherItem {
  std::vector<int32_t> prompt;
  DrafterFactory make_drafter;
  TraceOptions options;
  int first_round = 0;        // it joins the others then
  bool shares_first = false;  // what its prompt has in common with the first item's is taken from its cache
};
// Prompts go in chunks of so many rows beside the rows of those that decode.
Result<std::vector<Trace>> RecordTogether(LoadedModel& model, const std::vector<TogetherItem>& items,
                                          int n_predict, int prefill_chunk,
                                          DraftModels* draft_models = nullptr);

// Where two traces part: "token 7 is 12, expected 13", "the logits of token 7 differ", or "" if they are
// identical.
std::string FirstDifference(const Trace& expected, const Trace& actual);

}  // namespace longspec
