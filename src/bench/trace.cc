// SPDX-License-Identifier: Apache-2.0
#include "bench/trace.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "decode/batch_decoder.h"
#include "decode/policy.h"
#include "kv/full_cache.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

// FNV-1a over the 32-bit words of a row.
uint64_t HashRow(const LogitRow& row) {
  uint64_t hash = 14695981039346656037ULL;
  for (const float x : row.values()) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    hash = (hash ^ bits) * 1099511628211ULL;
  }
  return hash;
}

// A text as it is written.
struct Writing {
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<Policy> policy;
  std::unique_ptr<Drafter> drafter;
  std::vector<int32_t> tokens;
  Sequence sequence;
  Trace trace;

  // The cache (borrowed) may hold a part of the prompt, but for its last token.
  Status Begin(const LoadedModel& model, const DrafterFactory& make_drafter, const TraceOptions& options,
               const std::vector<int32_t>& prompt, KvCache* cache, AdaptiveMemory* memory,
               DraftModels* draft_models) {
    LS_ASSIGN(Sampler of, Sampler::Create(options.sampling, model.target->vocab_size(), 0, model.kernels));
    sampler = std::make_unique<Sampler>(std::move(of));
    SpeculationOptions speculation;
    speculation.draft_n_max = options.draft_n_max;
    policy = options.adaptive ? MakeAdaptivePolicy(speculation, "", memory) : MakeFixedPolicy(speculation);
    LS_ASSIGN(drafter, make_drafter({.target = model.target.get(), .cache = cache, .models = draft_models}));
    tokens = prompt;
    sequence = {.tokens = &tokens,
                .cache = cache,
                .drafter = drafter.get(),
                .policy = policy.get(),
                .sampler = sampler.get(),
                .dice = options.dice,
                .stats = {},
                .draft_failure = {}};
    sequence.Follow();
    return {};
  }

  Status Take(const Turn& turn) {
    LS_TRY(turn.status);
    for (size_t i = 0; i < turn.tokens.size(); ++i) {
      trace.tokens.push_back(turn.tokens[i]);
      trace.logits_hash.push_back(HashRow(turn.logits[turn.path[i]]));
    }
    return {};
  }

  Trace Finish() {
    trace.drafted = sequence.stats.drafted;
    trace.mean_acceptance_length = sequence.stats.mean_acceptance_length();
    trace.uses = drafter->uses();
    return std::move(trace);
  }
};

}  // namespace

Recorder::Recorder(LoadedModel& model, std::vector<int32_t> prompt, int n_predict, int prefill_chunk)
    : model_(model),
      prompt_(std::move(prompt)),
      n_predict_(n_predict),
      prefill_chunk_(prefill_chunk),
      cache_(model.NewCache(static_cast<int>(prompt_.size()) + n_predict + kMostDrafted + 1)) {}

Result<Trace> Recorder::Record(const DrafterFactory& make_drafter, const TraceOptions& options,
                               DraftModels* draft_models) {
  const int known = options.reads_prompt ? 0 : static_cast<int>(prompt_.size()) - 1;
  cache_->Truncate(std::min(cache_->length(), known));
  AdaptiveMemory memory;  // nothing learned yet
  Writing text;
  LS_TRY(text.Begin(model_, make_drafter, options, prompt_, cache_.get(), &memory, draft_models));
  BatchDecoder rounds(model_.target.get());
  while (const int left = n_predict_ - static_cast<int>(text.trace.tokens.size())) {
    // The prompt's last token is in the first round that decodes.
    const int prompt = std::min(prefill_chunk_, text.sequence.n_missing() - 1);
    Turn turn{.sequence = &text.sequence, .max_rows = std::max(prompt, 1), .max_tokens = left};
    LS_TRY(rounds.Run({&turn, 1}));
    LS_TRY(text.Take(turn));
  }
  return text.Finish();
}

Result<std::vector<Trace>> RecordTogether(LoadedModel& model, const std::vector<TogetherItem>& items,
                                          int n_predict, int prefill_chunk, DraftModels* draft_models) {
  const auto pool = model.target->NewPool(model.layout, model.spec.n_layer, {});
  AdaptiveMemory memory;
  std::vector<std::unique_ptr<FullCache>> caches(items.size());
  std::vector<Writing> all(items.size());
  const auto start = [&](size_t i) -> Status {
    const TogetherItem& item = items[i];
    const auto n_prompt = static_cast<int>(item.prompt.size());
    if (item.shares_first && i > 0) {
      caches[i] = caches[0]->Fork();
      const auto common = std::ranges::mismatch(all[0].tokens, item.prompt).in2 - item.prompt.begin();
      caches[i]->Truncate(std::min({caches[i]->length(), static_cast<int>(common), n_prompt - 1}));
    } else {
      caches[i] = MakeFullCache(pool, n_prompt + n_predict + Recorder::kMostDrafted + 1);
    }
    return all[i].Begin(model, item.make_drafter, item.options, item.prompt, caches[i].get(), &memory,
                        draft_models);
  };
  BatchDecoder rounds(model.target.get(), &memory.costs);
  for (int round = 0;; ++round) {
    std::vector<Turn> turns;
    std::vector<Writing*> whose;
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
    for (size_t t = 0; t < turns.size(); ++t) LS_TRY(whose[t]->Take(turns[t]));
  }
  std::vector<Trace> traces;
  for (Writing& text : all) traces.push_back(text.Finish());
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
