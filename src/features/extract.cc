// SPDX-License-Identifier: Apache-2.0
#include "features/extract.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/shared_parts.h"
#include "network/rope.h"

namespace longspec {

FeatureTarget DescribeTarget(const SharedParts& parts, const GgufFile& file) {
  const ModelSizes& c = *parts.sizes;
  const RopeTable table(c.rope);
  const auto name = file.GetStringOr("general.name", "");
  return {.name = name.ok() ? ValidUtf8(*name) : "",
          .fingerprint = TargetFingerprint(file),
          .n_embd = c.n_embd,
          .n_head = c.n_head,
          .n_head_kv = c.n_head_kv,
          .head_dim = c.head_dim,
          .n_ff = c.n_ff,
          .n_vocab = c.n_vocab,
          .n_ctx = c.context_length(),
          .rms_eps = static_cast<double>(c.rms_eps),
          .rope_base = c.rope.freq_base,
          .rope_factor = c.rope.scale,
          .rope_scaling = c.rope.ScalingName(),
          .rope_frequencies = table.frequencies(),
          .rope_magnitude = table.magnitude()};
}

FeatureExtractor::FeatureExtractor(Target* target, std::unique_ptr<KvCache> cache, int rows, int top_k,
                                   const FeatureKeep& keep)
    : writer_(target, [&cache] { return std::move(cache); },
              {.max_tokens = 0,
               .temperatures = {0.0F},
               .at_once = 1,
               .top_k = top_k,
               .beginning_logits = true,
               .rows = rows,
               .keep = keep}) {}

Result<ExtractedFeatures> FeatureExtractor::Extract(std::span<const int32_t> tokens,
                                                    const std::function<bool(int)>& on_rows) {
  if (KeepsNothing()) {
    ExtractedFeatures positions;
    positions.positions.resize(tokens.size());
    std::iota(positions.positions.begin(), positions.positions.end(), 0);
    if (!on_rows(static_cast<int>(tokens.size()))) return Cancelled("interrupted");
    return positions;
  }
  const std::vector<int32_t> beginning(tokens.begin(), tokens.end());
  LS_ASSIGN(std::vector<WrittenContinuation> all, writer_.Write({&beginning, 1}, 0, on_rows));
  return std::move(all[0].features);
}

}  // namespace longspec
