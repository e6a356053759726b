// SPDX-License-Identifier: Apache-2.0
#include "draft/spec_extend.h"

#include <algorithm>
#include <utility>

#include "attention/attention_mass.h"
#include "base/check.h"
#include "kv/chunk_pool.h"
#include "model/llama.h"

namespace longspec {
namespace {

size_t Z(int n) { return static_cast<size_t>(n); }

constexpr int kMostTreeRowsOfTarget = 256;

std::unique_ptr<ReindexedCache> MakeCache(const SpeculationOptions& options, const SharedParts& target,
                                          const KvLayout& layout, int n_layer, const RopeConfig& config) {
  LS_CHECK(options.spec_extend_chunks > 0);
  const auto rope = std::make_shared<const RopeTable>(config);
  return MakeReindexedCache(layout, n_layer,
                            {.kernels = target.kernels,
                             .pairing = config.pairing,
                             .n_rot = rope->n_rot(),
                             .magnitude = rope->magnitude(),
                             .row = [rope](int position, float* cos_sin) { rope->Row(position, cos_sin); }},
                            ReindexOptions{.n_chunks = options.spec_extend_chunks});
}

}  // namespace

SpecExtend::SpecExtend(const SpeculationOptions& options, const SharedParts& target, const KvCache& cache,
                       const KvLayout& layout, int n_layer, const RopeConfig& rope)
    : target_(target),
      target_cache_(cache),
      every_(options.spec_extend_every),
      n_chunks_(options.spec_extend_chunks),
      cache_(MakeCache(options, target, layout, n_layer, rope)) {}

Taps SpecExtend::With(Taps taps) const {
  if (n_rounds_ % every_ == 0) taps.query_rows = std::max(taps.query_rows, kMostTreeRowsOfTarget);
  return taps;
}

void SpecExtend::Read(const CommittedRows& rows) {
  if (rows.tree == nullptr || rows.rows.empty()) return;
  const int last = rows.rows.back();
  if (n_rounds_++ % every_ != 0 || !rows.HasQueries(last)) return;
  const LlamaConfig& c = *target_.config;
  const int layer = c.n_layer - 1, width = c.n_head * c.head_dim;
  AttentionMass(*target_.kernels, c.attention(), target_cache_.Span(layer),
                {rows.QueriesOf(last, layer, width), Z(width)}, &mass_);
  has_scores_ = true;
}

Status SpecExtend::Choose(std::span<const int32_t> positions) {
  if (!std::exchange(has_scores_, false)) return {};
  if (positions.empty()) return cache_->Choose(mass_);
  scores_.clear();
  for (const int32_t p : positions) scores_.push_back(Z(p) < mass_.size() ? mass_[Z(p)] : 0.0F);
  return cache_->Choose(scores_);
}

std::unique_ptr<SpecExtend> MakeSpecExtend(const SpeculationOptions& options, const SharedParts& target,
                                           const KvCache& cache, const KvLayout& layout, int n_layer,
                                           const RopeConfig& rope) {
  if (options.spec_extend_chunks == 0) return nullptr;
  return std::make_unique<SpecExtend>(options, target, cache, layout, n_layer, rope);
}

Status CheckSpecExtend(const SpeculationOptions& options, const KvCache& cache) {
  if (options.spec_extend_chunks == 0 || cache.exactness() == Exactness::kLossless) return {};
  return Unsupported("--spec-extend-chunks: reads the target's whole cache, and this one keeps a part");
}

void AddSpecExtendMemory(const SpeculationOptions& options, const KvLayout& layout, int n_layer, int max_rows,
                         DraftMemory* plan) {
  const int positions = options.spec_extend_chunks * ReindexOptions{}.chunk + max_rows;
  plan->fixed += static_cast<uint64_t>(positions / kKvChunk + 1) * KvChunkBytes(layout, n_layer);
  // Keys in f32, values as they are.
  plan->kv_chunk = uint64_t{kKvChunk} * static_cast<uint64_t>(n_layer) *
                   static_cast<uint64_t>(layout.n_kv_head) *
                   (static_cast<uint64_t>(layout.head_dim) * sizeof(float) + layout.v_row_bytes());
}

}  // namespace longspec
