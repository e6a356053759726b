// SPDX-License-Identifier: Apache-2.0
#include "draft_model/spec_extend.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "kv/chunk_pool.h"
#include "model/transformer.h"

namespace longspec {
namespace {

constexpr int kMostTreeRowsOfTarget = 256;
constexpr int kNodesOfPaper = 50;

}  // namespace

SpecExtendSettings SpecExtendOf(const SpeculationOptions& options, const SpecExtendSettings& paper,
                                int trained_positions) {
  if (!AsksForSpecExtend(options)) return {};
  constexpr int kChunk = ReindexOptions{}.chunk;
  const int trained = trained_positions > 0 ? trained_positions : std::numeric_limits<int>::max();
  SpecExtendSettings settings = {.n_chunks = options.spec_extend.chunks,
                                 .every = options.spec_extend.every,
                                 .from = options.spec_extend.from};
  if (settings.n_chunks == 0) {
    settings.n_chunks = std::clamp((trained - trained / 8) / kChunk, 1, paper.n_chunks);
  }
  if (settings.every == 0) settings.every = paper.every;
  if (settings.from == 0) settings.from = settings.n_chunks * kChunk;
  settings.from = std::min(settings.from, trained);
  return settings;
}

ReindexOptions SetOf(const SpecExtendSettings& settings) { return {.n_chunks = settings.n_chunks}; }

SpecExtend::SpecExtend(const SpecExtendSettings& settings, const Target& target, const KvCache& cache,
                       ReindexedSet* set)
    : target_(target), target_cache_(cache), settings_(settings), set_(*set) {
  LS_CHECK(settings.on());
}

void SpecExtend::Restart() {
  n_rounds_ = 0;
  has_scores_ = false;
}

Status SpecExtend::Follow(size_t n_tokens) {
  const bool all = n_tokens < Z(settings_.from);
  if (all == sees_all_) return {};
  sees_all_ = all;
  Restart();
  return set_.SeeAll(all);
}

Status SpecExtend::BeginPromptPiece(int entry) {
  const int chunk = set_.options().chunk;
  return set_.HoldFrom(sees_all_ ? 0 : std::max(0, (entry - kPromptWindow) / chunk));
}

Taps SpecExtend::With(Taps taps) const {
  if (!sees_all_ && n_rounds_ % settings_.every == 0) {
    taps.query_rows = std::max(taps.query_rows, kMostTreeRowsOfTarget);
  }
  return taps;
}

void SpecExtend::Read(const CommittedRows& rows) {
  if (sees_all_ || rows.tree == nullptr || rows.rows.empty()) return;
  const int last = rows.rows.back();
  if (n_rounds_ % settings_.every != 0) {
    ++n_rounds_;
    return;
  }
  if (!rows.HasQueries(last)) return;  // the next round is asked for them again
  ++n_rounds_;
  const std::vector<StateRows> queries = rows.QueriesOf(last);
  target_.AttentionMass(target_cache_, static_cast<int>(queries.size()) - 1, queries.back(), &mass_);
  has_scores_ = true;
}

Status SpecExtend::Choose(std::span<const int32_t> positions) {
  if (!std::exchange(has_scores_, false)) return {};
  if (positions.empty()) return set_.Choose(mass_);
  scores_.clear();
  for (const int32_t p : positions) scores_.push_back(Z(p) < mass_.size() ? mass_[Z(p)] : 0.0F);
  return set_.Choose(scores_);
}

void SettleSpecExtend(SpeculationOptions& options) {
  if (!AsksForSpecExtend(options) || !options.tree.empty()) return;
  options.tree = "opt:0.7:10";
  if (options.draft_n_max == SpeculationOptions().draft_n_max) options.draft_n_max = kNodesOfPaper;
  if (options.adaptive_n_max == SpeculationOptions().adaptive_n_max) options.adaptive_n_max = kNodesOfPaper;
}

Status CheckSpecExtend(const SpeculationOptions& options, const KvCache& cache) {
  if (!AsksForSpecExtend(options) || cache.exactness() == Exactness::kLossless) return {};
  return Unsupported("--spec-extend: reads the target's whole cache, and this one keeps a part");
}

void AddSpecExtendMemory(const SpeculationOptions& options, const SpecExtendSettings& paper,
                         const ModelSizes& target, const KvLayout& layout, int n_layer, int max_rows,
                         DraftMemory* plan) {
  const SpecExtendSettings settings = SpecExtendOf(options, paper, /*trained_positions=*/0);
  const int positions =
      std::max({settings.n_chunks * ReindexOptions{}.chunk, settings.from, SpecExtend::kPromptWindow}) +
      max_rows;
  plan->fixed += static_cast<uint64_t>(positions / kKvChunk + 1) * KvChunkBytes(layout, n_layer);
  plan->fixed += uint64_t{kMostTreeRowsOfTarget} * static_cast<uint64_t>(target.n_layer) *
                 static_cast<uint64_t>(int64_t{target.n_head} * target.head_dim) * sizeof(float);
}

}  // namespace longspec
