// SPDX-License-Identifier: Apache-2.0
#include "features/continuations.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "attention/kv_span.h"
#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "decode/owned_sequence.h"
#include "draft/drafter.h"
#include "kernels/packing.h"
#include "kv/kv_mover.h"
#include "model/shared_parts.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "sampling/top_tokens.h"
#include "tensor/half.h"

namespace longspec {
namespace {

// Stands in a drafter's place, as that sees all committed rows. It proposes nothing. An error is kept,
// because rounds go on without a drafter that failed.
class RowRecorder final : public Drafter {
 public:
  // `top_k` tokens are kept of each row: of rows that nothing is drawn from, too, if `all_rows`, else zeros.
  RowRecorder(const SharedParts& parts, const FeatureKeep& keep, int top_k, bool all_rows)
      : parts_(parts), keep_(keep), top_k_(top_k), all_rows_(all_rows) {
    kept_.kept.hidden.resize(keep.hidden_layers.size());
  }

  std::string_view name() const override { return "none"; }
  Taps taps() const override {
    return {.hidden_layers = keep_.hidden_layers, .final_hidden = keep_.final_hidden, .logits = all_rows_};
  }
  Status Follow(std::span<const int32_t>) override { return {}; }
  Status Propose(const DraftBudget&, std::span<const int32_t>, TokenTree&) override { return {}; }
  Status Read(const CommittedRows& rows) override {
    for (const int32_t row : rows.rows) {
      if (keep_.final_hidden) KeepRow(rows.output->final_hidden, row, &kept_.kept.final_hidden);
      for (size_t i = 0; i < keep_.hidden_layers.size(); ++i) {
        KeepRow(rows.output->hidden[i], row, &kept_.kept.hidden[i]);
      }
    }
    if (top_k_ == 0) return {};
    std::vector<TokenScore> top;
    for (const int32_t row : rows.rows) {
      top.assign(Z(top_k_), {});
      if (rows.HasLogits(row)) {
        const LogitRow logits = rows.LogitsOf(row);
        logits.MostProbable(*parts_.lane.kernels, logits.vocab(), top_k_, {}, top);
      }
      if (top.size() != Z(top_k_)) return status_ = Corrupt("the target's logits are no finite numbers");
      for (const TokenScore& score : top) {
        kept_.top_ids.push_back(score.token);
        kept_.top_log_probs.push_back(FloatToHalf(static_cast<float>(score.log_prob)));
      }
    }
    return {};
  }

  // Of all rows, which `cache` holds: the last layer's keys (in checkpoint layout) and values, and what was
  // kept. The error that Read met, if it met one.
  Result<ExtractedFeatures> Features(const KvCache& cache) const {
    if (!status_.ok()) return status_;
    ExtractedFeatures features = kept_;
    features.positions.resize(Z(cache.length()));
    std::iota(features.positions.begin(), features.positions.end(), 0);
    if (keep_.kv) KeepKeysAndValues(cache, &features.kept);
    return features;
  }

 private:
  uint16_t Half(float value) const {
    return keep_.type == DType::kBF16 ? FloatToBFloat16(value) : FloatToHalf(value);
  }

  void KeepRow(const StateRows& rows, int32_t row, std::vector<uint16_t>* to) {
    constexpr float kLargestHalf = 65504;
    bool fits = true;
    for (const float state : rows.From(row, 1).Read(&room_)) {
      fits = fits && (keep_.type == DType::kBF16 || !(std::abs(state) > kLargestHalf));
      to->push_back(Half(state));
    }
    if (!fits)
      status_ = Unsupported("--keep-type f16: a state of the target is larger than f16 holds; bf16 holds it");
  }

  void KeepKeysAndValues(const KvCache& cache, FeatureTensors<std::vector<uint16_t>>* kept) const {
    const ModelSizes& c = *parts_.sizes;
    const KvSpan span = cache.Span(c.n_layer - 1);
    const int n = cache.length(), head_dim = c.head_dim, half = c.rope.n_rot / 2;
    const bool adjacent = c.rope.pairing == kernels::RopePairing::kAdjacent;
    const size_t width = Z(int64_t{c.n_head_kv} * head_dim);
    kept->keys.resize(Z(n) * width);
    kept->values.resize(Z(n) * width);
    std::vector<float> keys(width), values(width);  // of a position
    for (int p = 0; p < n; ++p) {
      cache.mover().ReadKeys(span, 1, p, keys.data());
      cache.mover().ReadValues(span, 1, p, values.data());
      for (int h = 0; h < c.n_head_kv; ++h) {
        const size_t of_head = Z(int64_t{h} * head_dim), at = Z(p) * width + of_head;
        for (int d = 0; d < head_dim; ++d) {
          const int to = adjacent && d < c.rope.n_rot ? d / 2 + d % 2 * half : d;
          kept->keys[at + Z(to)] = Half(keys[of_head + Z(d)]);
          kept->values[at + Z(d)] = Half(values[of_head + Z(d)]);
        }
      }
    }
  }

  const SharedParts& parts_;
  const FeatureKeep& keep_;
  const int top_k_;
  const bool all_rows_;
  ExtractedFeatures kept_;
  std::vector<float> room_;  // of a row, where it is not in host memory
  Status status_;
};

}  // namespace

// A sequence under way. Rounds leave the newest token without keys and values, and the features are to have
// those of all: one token more than asked for is drawn, and dropped.
struct ContinuationWriter::Slot {
  Slot(std::vector<int32_t> beginning, KvCache* cache, Sampler sampler, RowRecorder of_recorder,
       WrittenContinuation* of)
      : to(of),
        n_begun(beginning.size()),
        recorder(std::move(of_recorder)),
        text(std::move(beginning), cache, &recorder, MakeFixedPolicy({.draft_n_max = 0}),
             std::move(sampler)) {}

  // REQUIRES: a token was drawn.
  bool IsComplete(const ContinuationOptions& options) const {
    const size_t n = text.tokens.size() - 1;
    return n == n_begun + Z(options.max_tokens) ||
           (n > n_begun && options.ends && options.ends(text.tokens[n - 1]));
  }

  WrittenContinuation* const to;
  const size_t n_begun;
  RowRecorder recorder;
  OwnedSequence text;
};

ContinuationWriter::ContinuationWriter(Target* target,
                                       const std::function<std::unique_ptr<KvCache>()>& new_cache,
                                       ContinuationOptions options)
    : target_(target),
      options_(std::move(options)),
      all_logits_(options_.beginning_logits && options_.top_k > 0),
      rows_(all_logits_ ? std::min(options_.rows, kFeatureRowsWithLogits) : options_.rows),
      decoder_(target) {
  LS_CHECK(target_->shared_parts() != nullptr && options_.rows > 0 && options_.at_once > 0);
  LS_CHECK(!options_.temperatures.empty() && options_.max_tokens >= 0);
  for (int i = 0; i < options_.at_once; ++i) caches_.push_back(new_cache());
}

std::string ContinuationWriter::arithmetic() const {
  const KvLayout layout = caches_.front()->Span(0).layout;
  const kernels::WeightFormat of_bf16 = target_->shared_parts()->bf16_format;
  std::string text;
  if (layout.k_type != CacheType::kF16) text += " -ctk " + std::string(CacheTypeName(layout.k_type));
  if (layout.v_type != CacheType::kF16) text += " -ctv " + std::string(CacheTypeName(layout.v_type));
  if (kernels::IsInBf16(of_bf16)) text += std::string(" --bf16-weights ") + kernels::ArithmeticName(of_bf16);
  return text;
}

Result<std::vector<WrittenContinuation>> ContinuationWriter::Write(
    std::span<const std::vector<int32_t>> beginnings, int64_t first_index,
    const std::function<bool(int)>& on_rows) {
  std::vector<WrittenContinuation> all(beginnings.size());
  const Status status = RunAll(beginnings, first_index, on_rows, &all);
  for (const auto& cache : caches_) cache->Truncate(0);
  if (!status.ok()) return status;
  return all;
}

Status ContinuationWriter::RunAll(std::span<const std::vector<int32_t>> beginnings, int64_t first_index,
                                  const std::function<bool(int)>& on_rows,
                                  std::vector<WrittenContinuation>* all) {
  std::vector<std::unique_ptr<Slot>> slots;  // in the order of their beginnings
  size_t next = 0;
  while (true) {
    for (const auto& cache : caches_) {
      if (next == beginnings.size()) break;
      if (std::ranges::any_of(slots, [&](const auto& s) { return s->text.sequence.cache == cache.get(); }))
        continue;
      const int64_t index = first_index + static_cast<int64_t>(next);
      SamplingOptions sampling;
      sampling.temperature = options_.temperatures[Z(index) % options_.temperatures.size()];
      sampling.seed = options_.seed;
      LS_ASSIGN(Sampler sampler,
                Sampler::Create(sampling, target_->vocab_size(), static_cast<uint64_t>(index)));
      cache->Truncate(0);
      slots.push_back(std::make_unique<Slot>(
          beginnings[next], cache.get(), std::move(sampler),
          RowRecorder(*target_->shared_parts(), options_.keep, options_.top_k, all_logits_), &(*all)[next]));
      ++next;
    }
    if (slots.empty()) return {};
    LS_TRY(Pass(slots, on_rows));
  }
}

// A round of as many as have room, the oldest first, each with all its missing tokens that fit. Those that it
// completes leave.
Status ContinuationWriter::Pass(std::vector<std::unique_ptr<Slot>>& slots,
                                const std::function<bool(int)>& on_rows) {
  std::vector<Turn> turns;
  int n_rows = 0;
  for (size_t i = 0; i < slots.size() && n_rows < rows_; ++i) {
    Sequence& sequence = slots[i]->text.sequence;
    turns.push_back({.sequence = &sequence, .max_rows = std::min(sequence.n_missing(), rows_ - n_rows)});
    n_rows += turns.back().max_rows;
  }
  LS_TRY(decoder_.Run(turns));
  for (size_t i = 0; i < turns.size(); ++i) {
    LS_TRY(turns[i].status);
    Slot& slot = *slots[i];
    if (turns[i].tokens.empty() || !slot.IsComplete(options_)) continue;
    LS_ASSIGN(slot.to->features, slot.recorder.Features(*slot.text.sequence.cache));
    slot.text.tokens.pop_back();
    slot.to->tokens = std::move(slot.text.tokens);
    slots[i].reset();
  }
  std::erase(slots, nullptr);
  if (!on_rows(n_rows)) return Cancelled("interrupted");
  return {};
}

}  // namespace longspec
