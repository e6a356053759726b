// SPDX-License-Identifier: Apache-2.0
#include "bench/trace.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "decode/batch_decoder.h"
#include "decode/owned_sequence.h"
#include "kv/full_cache.h"
#include "policy/policy.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

// FNV-1a over the 32-bit words of a row.
uint64_t HashRow(const LogitRow& row) {
  uint64_t hash = 14695981039346656037ULL;
  std::vector<float> room;
  for (const float x : row.Read(&room)) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    hash = (hash ^ bits) * 1099511628211ULL;
  }
  return hash;
}

// A text as it is written.
struct Writing {
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<OwnedSequence> text;
  Trace trace;

  // The cache (borrowed) may hold a part of the prompt, but for its last token.
  Status Begin(const LoadedModel& model, const DrafterFactory& make_drafter, const TraceOptions& options,
               const std::vector<int32_t>& prompt, KvCache* cache, AdaptiveMemory* memory,
               DraftModels* draft_models) {
    LS_ASSIGN(Sampler sampler,
              Sampler::Create(options.sampling, model.target->vocab_size(), 0, model.kernels));
    SpeculationOptions speculation;
    speculation.draft_n_max = options.draft_n_max;
    auto policy =
        options.adaptive ? MakeAdaptivePolicy(speculation, "", memory) : MakeFixedPolicy(speculation);
    LS_ASSIGN(drafter, make_drafter({.target = model.target.get(), .cache = cache, .models = draft_models}));
    text =
        std::make_unique<OwnedSequence>(prompt, cache, drafter.get(), std::move(policy), std::move(sampler));
    text->sequence.dice = options.dice;
    text->sequence.Follow();
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
    trace.drafted = text->sequence.stats.drafted;
    trace.mean_acceptance_length = text->sequence.stats.mean_acceptance_length();
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
  Writing one;
  LS_TRY(one.Begin(model_, make_drafter, options, prompt_, cache_.get(), &memory, draft_models));
  Sequence& sequence = one.text->sequence;
  BatchDecoder rounds(model_.target.get());
  while (const int left = n_predict_ - static_cast<int>(one.trace.tokens.size())) {
    Turn turn{.sequence = &sequence, .max_rows = sequence.NextRows(prefill_chunk_), .max_tokens = left};
    LS_TRY(rounds.Run({&turn, 1}));
    LS_TRY(one.Take(turn));
  }
  return one.Finish();
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
      const auto common = std::ranges::mismatch(all[0].text->tokens, item.prompt).in2 - item.prompt.begin();
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
      turns.push_back({.sequence = &all[i].text->sequence, .max_rows = prefill_chunk, .max_tokens = left});
      whose.push_back(&all[i]);
    }
    if (turns.empty() && !waiting) break;
    LS_TRY(rounds.Run(turns));
    for (size_t t = 0; t < turns.size(); ++t) LS_TRY(whose[t]->Take(turns[t]));
  }
  std::vector<Trace> traces;
  for (Writing& one : all) traces.push_back(one.Finish());
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
