// SPDX-License-Identifier: Apache-2.0
#include "network/describe_target.h"

#include "base/utf8.h"
#include "network/rope.h"

namespace longspec {

FeatureTarget DescribeTarget(const ModelSizes& c, const GgufFile& file) {
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

}  // namespace longspec
