// SPDX-License-Identifier: Apache-2.0
#include "features/continuations.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "model/shared_parts.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

// What the probabilities of a row that has none are: nobody reads them.
void AppendNoTokens(int n, ExtractedFeatures* features) {
  features->top_ids.resize(features->top_ids.size() + Z(n));
  features->top_log_probs.resize(features->top_log_probs.size() + Z(n));
}

}  // namespace

struct ContinuationWriter::Slot {
  KvCache* cache;
  Continuation* to = nullptr;  // null: free
  std::optional<Sampler> sampler;
  int left = 0;  // tokens that may be written
};

ContinuationWriter::ContinuationWriter(Target* target,
                                       const std::function<std::unique_ptr<KvCache>()>& new_cache,
                                       ContinuationOptions options)
    : target_(target), options_(std::move(options)) {
  LS_CHECK(target_->shared_parts() != nullptr && options_.rows > 0 && options_.at_once > 0);
  LS_CHECK(!options_.temperatures.empty() && options_.max_tokens > 0);
  for (int i = 0; i < options_.at_once; ++i) caches_.push_back(new_cache());
}

Result<std::vector<Continuation>> ContinuationWriter::Write(std::span<const std::vector<int32_t>> beginnings,
                                                            int64_t first_index,
                                                            const std::function<bool(int)>& on_rows) {
  std::vector<Continuation> all(beginnings.size());
  const Status status = RunAll(beginnings, first_index, on_rows, &all);
  for (const auto& cache : caches_) cache->Truncate(0);
  if (!status.ok()) return status;
  return all;
}

Status ContinuationWriter::RunAll(std::span<const std::vector<int32_t>> beginnings, int64_t first_index,
                                  const std::function<bool(int)>& on_rows, std::vector<Continuation>* all) {
  std::vector<Slot> slots;
  for (const auto& cache : caches_) slots.push_back({.cache = cache.get()});
  size_t next = 0;
  while (true) {
    std::vector<Slot*> active;
    for (Slot& slot : slots) {
      if (slot.to == nullptr && next < beginnings.size()) {
        const int64_t index = first_index + static_cast<int64_t>(next);
        SamplingOptions sampling;
        sampling.temperature = options_.temperatures[Z(index) % options_.temperatures.size()];
        sampling.seed = options_.seed;
        LS_ASSIGN(slot.sampler,
                  Sampler::Create(sampling, target_->vocab_size(), static_cast<uint64_t>(index)));
        slot.to = &(*all)[next];
        LS_TRY(Begin(beginnings[next++], &slot, on_rows));
      }
      if (slot.to != nullptr) active.push_back(&slot);
    }
    if (active.empty()) return {};
    LS_TRY(Step(active, on_rows));
  }
}

Status ContinuationWriter::Begin(const std::vector<int32_t>& beginning, Slot* slot,
                                 const std::function<bool(int)>& on_rows) {
  ExtractedFeatures* const features = &slot->to->features;
  slot->to->tokens = beginning;
  slot->left = options_.max_tokens;
  const auto rows =
      options_.beginning_logits ? std::min(options_.rows, kFeatureRowsWithLogits) : options_.rows;
  for (size_t begin = 0; begin < beginning.size(); begin += Z(rows)) {
    const auto part = std::span(beginning).subspan(begin, std::min(Z(rows), beginning.size() - begin));
    const bool last = begin + part.size() == beginning.size();
    LS_ASSIGN(KvTransaction kv, slot->cache->Begin(static_cast<int>(part.size())));
    const LogitsFor logits = options_.beginning_logits ? LogitsFor::kAllRows
                             : last                    ? LogitsFor::kLastRow
                                                       : LogitsFor::kNone;
    const ForwardSegment segment = {.tokens = part, .parents = {}, .kv = &kv, .logits = logits};
    LS_ASSIGN(const TargetOutput output, target_->Forward({&segment, 1}));
    kv.CommitAll();
    const TargetOutput::Segment& result = output.segments[0];
    AppendNoTokens((static_cast<int>(part.size()) - result.n_logits) * options_.top_k, features);
    if (options_.top_k > 0)
      LS_TRY(AppendTopTokens(*target_->shared_parts(), result, options_.top_k, features));
    if (last) Sample(result.logits + Z(result.n_logits - 1) * Z(output.vocab), slot);
    if (!on_rows(static_cast<int>(part.size()))) return Cancelled("interrupted");
  }
  return {};
}

void ContinuationWriter::Sample(const float* logits, Slot* slot) const {
  std::vector<int32_t>& tokens = slot->to->tokens;
  Sampler::Scratch scratch;
  const std::span<const float> row(logits, Z(target_->vocab_size()));
  tokens.push_back(slot->sampler->Sample(row, {.committed = tokens, .drafted = {}}, tokens.size(), scratch));
  --slot->left;
}

// Runs the newest token of each sequence. A sequence that it ends is complete with its keys and values.
Status ContinuationWriter::Step(std::span<Slot*> active, const std::function<bool(int)>& on_rows) {
  std::vector<KvTransaction> transactions;
  std::vector<ForwardSegment> segments;
  for (Slot* slot : active) {
    LS_ASSIGN(KvTransaction kv, slot->cache->Begin(1));
    transactions.push_back(std::move(kv));
  }
  for (size_t i = 0; i < active.size(); ++i) {
    segments.push_back({.tokens = std::span(active[i]->to->tokens).last(1),
                        .parents = {},
                        .kv = &transactions[i],
                        .logits = LogitsFor::kAllRows});
  }
  LS_ASSIGN(const TargetOutput output, target_->Forward(segments));
  for (size_t i = 0; i < active.size(); ++i) {
    Slot* const slot = active[i];
    transactions[i].CommitAll();
    Continuation* const to = slot->to;
    const TargetOutput::Segment& result = output.segments[i];
    if (options_.top_k > 0) {
      LS_TRY(AppendTopTokens(*target_->shared_parts(), result, options_.top_k, &to->features));
    }
    if (slot->left > 0 && to->tokens.back() != options_.end) {
      Sample(result.logits, slot);
      continue;
    }
    const int n = static_cast<int>(to->tokens.size());
    to->features.positions.resize(Z(n));
    std::iota(to->features.positions.begin(), to->features.positions.end(), 0);
    AppendLastLayer(*target_->shared_parts(), *slot->cache, n, &to->features);
    slot->cache->Truncate(0);
    slot->to = nullptr;
  }
  if (!on_rows(static_cast<int>(active.size()))) return Cancelled("interrupted");
  return {};
}

}  // namespace longspec
