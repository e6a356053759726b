// SPDX-License-Identifier: Apache-2.0
#include "bench/trace.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "decode/decoder.h"
#include "decode/policy.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

// FNV-1a over the 32-bit words of a row.
uint64_t HashRow(const float* row, int n) {
  uint64_t hash = 14695981039346656037ULL;
  for (int i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, row + i, sizeof(bits));
    hash = (hash ^ bits) * 1099511628211ULL;
  }
  return hash;
}

}  // namespace

Recorder::Recorder(LoadedModel& model, std::vector<int32_t> prompt, int n_predict, int prefill_chunk)
    : model_(model),
      prompt_(std::move(prompt)),
      n_predict_(n_predict),
      prefill_chunk_(prefill_chunk),
      cache_(model.NewCache(static_cast<int>(prompt_.size()) + n_predict + kMostDrafted + 1)) {}

Result<Trace> Recorder::Record(const DrafterFactory& make_drafter, const TraceOptions& options,
                               DraftModels* draft_models) {
  LS_ASSIGN(const Sampler sampler,
            Sampler::Create(options.sampling, model_.target->vocab_size(), 0, model_.kernels));
  SpeculationOptions speculation;
  speculation.draft_n_max = options.draft_n_max;
  AdaptiveMemory memory;  // nothing learned yet
  const auto policy =
      options.adaptive ? MakeAdaptivePolicy(speculation, "", &memory) : MakeFixedPolicy(speculation);
  cache_->Truncate(std::min(cache_->length(), static_cast<int>(prompt_.size()) - 1));
  LS_ASSIGN(const auto drafter,
            make_drafter({.target = model_.target.get(), .cache = cache_.get(), .models = draft_models}));
  std::vector<int32_t> committed = prompt_;
  Decoder decoder({.target = model_.target.get(),
                   .cache = cache_.get(),
                   .drafter = drafter.get(),
                   .policy = policy.get(),
                   .sampler = &sampler,
                   .prefill_chunk = prefill_chunk_,
                   .dice = options.dice},
                  &committed);
  LS_TRY(decoder.Prefill());
  Trace trace;
  while (static_cast<int>(trace.tokens.size()) < n_predict_) {
    LS_ASSIGN(const StepResult step, decoder.Step(n_predict_ - static_cast<int>(trace.tokens.size()), {}));
    for (size_t i = 0; i < step.tokens.size(); ++i) {
      const auto row = static_cast<size_t>(step.path[i]);
      trace.tokens.push_back(step.tokens[i]);
      trace.logits_hash.push_back(HashRow(step.logits + row * static_cast<size_t>(step.vocab), step.vocab));
    }
  }
  trace.drafted = decoder.stats().drafted;
  trace.mean_acceptance_length = decoder.stats().mean_acceptance_length();
  trace.uses = drafter->uses();
  return trace;
}

std::string FirstDifference(const Trace& expected, const Trace& actual) {
  const size_t n = std::min(expected.tokens.size(), actual.tokens.size());
  for (size_t i = 0; i < n; ++i) {
    if (expected.logits_hash[i] != actual.logits_hash[i]) {
      const bool same_token = expected.tokens[i] == actual.tokens[i];
      return "the logits of token " + std::to_string(i) + " differ" +
             (same_token ? ", the token does not"
                         : ", it is " + std::to_string(actual.tokens[i]) + " and not " +
                               std::to_string(expected.tokens[i]));
    }
    if (expected.tokens[i] != actual.tokens[i]) {
      return "token " + std::to_string(i) + " is " + std::to_string(actual.tokens[i]) + " and not " +
             std::to_string(expected.tokens[i]);
    }
  }
  if (expected.tokens.size() != actual.tokens.size()) return "the lengths differ";
  return "";
}

}  // namespace longspec
