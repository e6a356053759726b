// SPDX-License-Identifier: Apache-2.0
#include "bench/trace.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "decode/batch_decoder.h"
#include "decode/decoder.h"
#include "decode/policy.h"
#include "kv/full_cache.h"
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
  const int known = options.reads_prompt ? 0 : static_cast<int>(prompt_.size()) - 1;
  cache_->Truncate(std::min(cache_->length(), known));
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

Result<std::vector<Trace>> RecordTogether(LoadedModel& model, const std::vector<TogetherItem>& items,
                                          int n_predict, int prefill_chunk, DraftModels* draft_models) {
  struct Running {
    std::unique_ptr<FullCache> cache;
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<Policy> policy;
    std::unique_ptr<Drafter> drafter;
    std::vector<int32_t> tokens;
    Sequence sequence;
    Trace trace;
  };
  const auto pool = std::make_shared<ChunkPool>(model.layout, model.spec.n_layer);
  AdaptiveMemory memory;
  std::vector<Running> all(items.size());
  const auto start = [&](size_t i) -> Status {
    const TogetherItem& item = items[i];
    Running& r = all[i];
    const auto n_prompt = static_cast<int>(item.prompt.size());
    if (item.shares_first && i > 0) {
      r.cache = all[0].cache->Fork();
      const auto common = std::ranges::mismatch(all[0].tokens, item.prompt).in2 - item.prompt.begin();
      r.cache->Truncate(std::min({r.cache->length(), static_cast<int>(common), n_prompt - 1}));
    } else {
      r.cache = MakeFullCache(pool, n_prompt + n_predict + Recorder::kMostDrafted + 1);
    }
    LS_ASSIGN(Sampler sampler,
              Sampler::Create(item.options.sampling, model.target->vocab_size(), 0, model.kernels));
    r.sampler = std::make_unique<Sampler>(std::move(sampler));
    SpeculationOptions speculation;
    speculation.draft_n_max = item.options.draft_n_max;
    r.policy =
        item.options.adaptive ? MakeAdaptivePolicy(speculation, "", &memory) : MakeFixedPolicy(speculation);
    LS_ASSIGN(r.drafter, item.make_drafter(
                             {.target = model.target.get(), .cache = r.cache.get(), .models = draft_models}));
    r.tokens = item.prompt;
    r.sequence = {.tokens = &r.tokens,
                  .cache = r.cache.get(),
                  .drafter = r.drafter.get(),
                  .policy = r.policy.get(),
                  .sampler = r.sampler.get(),
                  .dice = item.options.dice,
                  .stats = {},
                  .draft_failure = {}};
    r.sequence.Follow();
    return {};
  };
  BatchDecoder rounds(model.target.get(), &memory.costs);
  for (int round = 0;; ++round) {
    std::vector<Turn> turns;
    std::vector<Running*> whose;
    bool waiting = false;
    for (size_t i = 0; i < items.size(); ++i) {
      waiting |= round < items[i].first_round;
      if (round == items[i].first_round) LS_TRY(start(i));
      const int left = n_predict - static_cast<int>(all[i].trace.tokens.size());
      if (round < items[i].first_round || left == 0) continue;
      turns.push_back({.sequence = &all[i].sequence, .max_rows = prefill_chunk, .max_tokens = left});
      whose.push_back(&all[i]);
    }
    if (turns.empty() && !waiting) break;
    LS_TRY(rounds.Run(turns));
    for (size_t t = 0; t < turns.size(); ++t) {
      LS_TRY(turns[t].status);
      Trace& trace = whose[t]->trace;
      for (size_t i = 0; i < turns[t].tokens.size(); ++i) {
        const size_t row = static_cast<size_t>(turns[t].path[i]) * static_cast<size_t>(rounds.vocab());
        trace.tokens.push_back(turns[t].tokens[i]);
        trace.logits_hash.push_back(HashRow(turns[t].logits + row, rounds.vocab()));
      }
    }
  }
  std::vector<Trace> traces;
  for (Running& r : all) {
    r.trace.drafted = r.sequence.stats.drafted;
    r.trace.mean_acceptance_length = r.sequence.stats.mean_acceptance_length();
    r.trace.uses = r.drafter->uses();
    traces.push_back(std::move(r.trace));
  }
  return traces;
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
