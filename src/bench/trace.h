// SPDX-License-Identifier: Apache-2.0
//
// A generation reduced to what must not change: its tokens, and a hash of the logits each was drawn from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/loaded_model.h"
#include "draft/drafter.h"
#include "longspec/options.h"

namespace longspec {

struct Trace {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> logits_hash;  // per token: of the bits of its row of logits
  double mean_acceptance_length = 0;

  bool operator==(const Trace& other) const {
    return tokens == other.tokens && logits_hash == other.logits_hash;
  }
};

struct TraceOptions {
  std::vector<int32_t> prompt;
  SamplingOptions sampling;  // with a seed
  int n_predict = 48;
  int prefill_chunk = 512;
  int draft_n_max = 8;
  bool adaptive = false;  // the policy; else fixed
};

// Makes the drafter of one run, for the cache it will read.
using DrafterFactory = std::function<Result<std::unique_ptr<Drafter>>(const DraftContext&)>;

Result<Trace> RecordTrace(LoadedModel& model, const DrafterFactory& make_drafter,
                          const TraceOptions& options);

// Where two traces part: "token 7 is 12, expected 13", "the logits of token 7 differ", or "" if they are
// identical.
std::string FirstDifference(const Trace& expected, const Trace& actual);

}  // namespace longspec
