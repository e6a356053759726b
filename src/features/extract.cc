// SPDX-License-Identifier: Apache-2.0
#include "features/extract.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/top_tokens.h"
#include "model/rope.h"
#include "model/shared_parts.h"
#include "tensor/half.h"

namespace longspec {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

FeatureTarget DescribeTarget(const SharedParts& parts, const GgufFile& file) {
  const LlamaConfig& c = *parts.config;
  const RopeTable table(c.rope);
  return {.name = c.name,
          .fingerprint = TargetFingerprint(file),
          .n_embd = c.n_embd,
          .n_head = c.n_head,
          .n_head_kv = c.n_head_kv,
          .head_dim = c.head_dim,
          .n_ff = c.n_ff,
          .n_vocab = c.n_vocab,
          .n_ctx = c.n_ctx_train,
          .rms_eps = static_cast<double>(c.rms_eps),
          .rope_base = c.rope.freq_base,
          .rope_factor = c.rope.scale,
          .rope_scaling = c.rope.ScalingName(),
          .rope_frequencies = table.frequencies(),
          .rope_magnitude = table.magnitude()};
}

Status AppendTopTokens(const SharedParts& parts, const TargetOutput::Segment& rows, int k,
                       ExtractedFeatures* features) {
  const int vocab = parts.config->n_vocab;
  std::vector<TokenScore> top;
  for (int r = 0; r < rows.n_logits; ++r) {
    TopTokens(*parts.kernels, rows.logits + Z(r) * Z(vocab), vocab, k, {}, top);
    if (top.size() != Z(k)) return Corrupt("the target's logits are no finite numbers");
    for (const TokenScore& score : top) {
      features->top_ids.push_back(score.token);
      features->top_log_probs.push_back(FloatToHalf(static_cast<float>(score.log_prob)));
    }
  }
  return {};
}

void AppendLastLayer(const SharedParts& parts, const KvCache& cache, int n, ExtractedFeatures* features) {
  const LlamaConfig& c = *parts.config;
  const KvSpan span = cache.Span(c.n_layer - 1);
  const int head_dim = c.head_dim, half = c.rope.n_rot / 2;
  const bool adjacent = c.rope.pairing == kernels::RopePairing::kAdjacent;
  const size_t width = Z(int64_t{c.n_head_kv} * head_dim);
  features->keys.resize(Z(n) * width);
  features->values.resize(Z(n) * width);
  for (int p = 0; p < n; ++p) {
    for (int h = 0; h < c.n_head_kv; ++h) {
      const size_t at = Z(p) * width + Z(int64_t{h} * head_dim);
      for (int d = 0; d < head_dim; ++d) {
        const int to = adjacent && d < c.rope.n_rot ? d / 2 + d % 2 * half : d;
        features->keys[at + Z(to)] = FloatToHalf(span.KeyAt(p, h, d));
        features->values[at + Z(d)] = FloatToHalf(span.ValueAt(p, h, d));
      }
    }
  }
}

FeatureExtractor::FeatureExtractor(Target* target, std::unique_ptr<KvCache> cache, int rows, int top_k)
    : target_(target),
      cache_(std::move(cache)),
      rows_(top_k > 0 ? std::min(rows, kFeatureRowsWithLogits) : rows),
      top_k_(top_k) {
  LS_CHECK(target_->shared_parts() != nullptr && rows_ > 0);
}

Result<ExtractedFeatures> FeatureExtractor::Extract(std::span<const int32_t> tokens,
                                                    const std::function<bool(int)>& on_rows) {
  ExtractedFeatures features;
  const Status status = Run(tokens, &features, on_rows);
  if (status.ok()) {
    AppendLastLayer(*target_->shared_parts(), *cache_, static_cast<int>(tokens.size()), &features);
  }
  cache_->Truncate(0);
  if (!status.ok()) return status;
  return features;
}

Status FeatureExtractor::Run(std::span<const int32_t> tokens, ExtractedFeatures* features,
                             const std::function<bool(int)>& on_rows) {
  features->positions.resize(tokens.size());
  std::iota(features->positions.begin(), features->positions.end(), 0);
  for (size_t begin = 0; begin < tokens.size(); begin += Z(rows_)) {
    const auto part = tokens.subspan(begin, std::min(Z(rows_), tokens.size() - begin));
    LS_ASSIGN(KvTransaction kv, cache_->Begin(static_cast<int>(part.size())));
    const ForwardSegment segment = {.tokens = part,
                                    .parents = {},
                                    .kv = &kv,
                                    .logits = top_k_ > 0 ? LogitsFor::kAllRows : LogitsFor::kNone};
    LS_ASSIGN(const TargetOutput output, target_->Forward({&segment, 1}));
    kv.CommitAll();
    if (top_k_ > 0) LS_TRY(AppendTopTokens(*target_->shared_parts(), output.segments[0], top_k_, features));
    if (!on_rows(static_cast<int>(part.size()))) return Cancelled("interrupted");
  }
  return {};
}

}  // namespace longspec
