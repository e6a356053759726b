// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_block.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/status_macros.h"
#include "draft_model/draft_weights.h"
#include "kernels/ops.h"

namespace longspec {

namespace {

constexpr int kHeadDimUnit = 16;  // AttentionShape::head_dim
constexpr int64_t kMaxAttentionWidth = 1 << 20;

int Or(int stated, int otherwise) { return stated != 0 ? stated : otherwise; }

// Llama 3.1: frequencies of long waves are divided by `factor`, those of short waves stay, with a ramp
// between.
Status AddLlama3(const DraftCheckpoint& checkpoint, const ConfigKeys& scaling, RopeConfig* rope) {
  LS_ASSIGN(const double low, scaling.Positive("low_freq_factor"));
  LS_ASSIGN(const double high, scaling.Positive("high_freq_factor"));
  const double factor = checkpoint.config.rope_factor;
  const double positions = checkpoint.config.rope_original_positions;
  if (factor == 0 || low == 0 || high <= low || positions == 0) {
    return Corrupt(checkpoint.path +
                   ": \"rope_scaling\" of type llama3 needs factor, low_freq_factor, a larger "
                   "high_freq_factor and original_max_position_embeddings");
  }
  for (int i = 0; i < rope->n_rot / 2; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(rope->freq_base, 2.0 * i / rope->n_rot);
    const double kept = std::clamp((positions / wave - low) / (high - low), 0.0, 1.0);
    rope->freq_factors.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
  }
  return {};
}

}  // namespace

AttentionShape DraftBlock::attention() const {
  return {.n_head = shape.n_head,
          .n_kv_head = shape.n_head_kv,
          .head_dim = shape.head_dim,
          .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
}

Result<RopeConfig> ReadDraftRope(const DraftCheckpoint& checkpoint, int head_dim) {
  const DraftConfig& c = checkpoint.config;
  RopeConfig rope;
  rope.pairing = kernels::RopePairing::kHalfSplit;
  rope.n_rot = head_dim;
  if (c.rope_theta != 0.0) rope.freq_base = c.rope_theta;
  if (c.rope_scaling.empty() || c.rope_scaling == "none") return rope;
  LS_ASSIGN(ConfigKeys scaling, checkpoint.keys.Object("rope_scaling"));
  if (scaling.empty()) {
    LS_ASSIGN(scaling, checkpoint.keys.Object("rope_parameters"));
  }
  if (c.rope_scaling == "llama3") {
    LS_TRY(AddLlama3(checkpoint, scaling, &rope));
    return rope;
  }
  if (c.rope_scaling != "linear" && c.rope_scaling != "yarn") {
    return Unsupported(checkpoint.path + ": \"rope_scaling\" of type " + c.rope_scaling +
                       "; supported are linear, yarn and llama3");
  }
  if (c.rope_factor == 0) {
    return Corrupt(checkpoint.path + ": \"rope_scaling\" of type " + c.rope_scaling + " needs a factor");
  }
  rope.scale = c.rope_factor;
  rope.scaling = RopeOptions::Scaling::kLinear;
  if (c.rope_scaling == "linear") return rope;
  rope.scaling = RopeOptions::Scaling::kYarn;
  LS_ASSIGN(const int positions, checkpoint.keys.Size("max_position_embeddings"));
  rope.orig_ctx = Or(c.rope_original_positions, positions);
  if (rope.orig_ctx == 0) {
    return Corrupt(checkpoint.path +
                   ": \"rope_scaling\" of type yarn needs original_max_position_embeddings");
  }
  if (c.rope_beta_fast != 0) rope.beta_fast = c.rope_beta_fast;
  if (c.rope_beta_slow != 0) rope.beta_slow = c.rope_beta_slow;
  LS_ASSIGN(const double magnitude, scaling.Positive("attention_factor"));
  if (magnitude != 0) rope.attn_factor = magnitude / rope.YarnMagnitude();
  return rope;
}

Result<DraftBlock> ReadDraftBlock(const DraftCheckpoint& checkpoint, const ModelSizes& target,
                                  const std::string& up) {
  const DraftConfig& c = checkpoint.config;
  DraftBlock block;
  BlockShape& s = block.shape;
  s.n_embd = target.n_embd;
  s.n_head = Or(c.n_head, target.n_head);
  s.n_head_kv = Or(c.n_kv_head, target.n_head_kv);
  s.head_dim = Or(c.head_dim, target.head_dim);
  const int64_t width = int64_t{s.n_head} * s.head_dim;
  if (s.n_head % s.n_head_kv != 0 || s.head_dim % kHeadDimUnit != 0 || s.head_dim > kernels::kMaxHeadDim ||
      width % kernels::kQuantBlock != 0 || width > kMaxAttentionWidth) {
    return Unsupported(
        checkpoint.path + ": " + std::to_string(s.n_head) + " attention heads over " +
        std::to_string(s.n_head_kv) + " key-value heads of dimension " + std::to_string(s.head_dim) +
        "; heads must be a multiple of key-value heads, their dimension a multiple of 16 up to " +
        std::to_string(kernels::kMaxHeadDim) + ", and together a multiple of 32 up to " +
        std::to_string(kMaxAttentionWidth));
  }
  LS_ASSIGN(s.n_ff, DraftRowsOf(checkpoint, up, "MLP width"));
  s.rms_eps = c.rms_eps != 0 ? static_cast<float>(c.rms_eps) : target.rms_eps;
  s.pairing = kernels::RopePairing::kHalfSplit;
  s.n_rot = s.head_dim;
  LS_ASSIGN(const bool of_target, checkpoint.keys.Flag("longspec_rope_of_target", false));
  if (of_target) {
    const Status same = CheckDraftRope(checkpoint, target);
    if (same.ok() && target.rope.n_rot <= s.head_dim) {
      block.rope = target.rope;
      block.rope.pairing = s.pairing;
      s.n_rot = target.rope.n_rot;
      return block;
    }
    if (c.rope_scaling != "none") return same;
  }
  LS_ASSIGN(block.rope, ReadDraftRope(checkpoint, s.head_dim));
  return block;
}

KvLayout DraftCacheLayout(int n_kv_head, int head_dim, const KvLayout& target) {
  KvLayout layout = target;
  layout.n_kv_head = n_kv_head;
  layout.head_dim = head_dim;
  if (!CheckLayout(layout).ok()) layout.k_type = layout.v_type = CacheType::kF16;
  return layout;
}

void Append(std::vector<DraftPart> more, std::vector<DraftPart>* parts) {
  std::ranges::move(more, std::back_inserter(*parts));
}

std::vector<DraftPart> DraftAttention::Parts(const BlockShape& shape, const std::string& prefix, int64_t n_in,
                                             DraftRows rotated) {
  constexpr bool kOptional = false;
  const int64_t q_width = shape.q_width(), kv = shape.kv_width();
  return {{prefix + "q_proj.weight", n_in, q_width, &q, nullptr, rotated},
          {prefix + "k_proj.weight", n_in, kv, &k, nullptr, rotated},
          {prefix + "v_proj.weight", n_in, kv, &v},
          {prefix + "o_proj.weight", q_width, shape.n_embd, &o},
          {prefix + "q_proj.bias", q_width, 1, nullptr, &q_bias, rotated, kOptional},
          {prefix + "k_proj.bias", kv, 1, nullptr, &k_bias, rotated, kOptional},
          {prefix + "v_proj.bias", kv, 1, nullptr, &v_bias, DraftRows::kAsStored, kOptional}};
}

std::vector<DraftPart> DraftMlp::Parts(const BlockShape& shape, const std::string& prefix) {
  const int64_t d = shape.n_embd, ff = shape.n_ff;
  return {{prefix + "gate_proj.weight", d, ff, &gate},
          {prefix + "up_proj.weight", d, ff, &up},
          {prefix + "down_proj.weight", ff, d, &down}};
}

std::vector<DraftPart> DraftLayer::Parts(const std::string& prefix, const std::string& attention_name) {
  const BlockShape& shape = block.shape;
  std::vector<DraftPart> parts = {
      {prefix + ".input_layernorm.weight", shape.n_embd, 1, nullptr, &attention_norm}};
  Append(attention.Parts(shape, prefix + "." + attention_name + ".", shape.n_embd), &parts);
  parts.push_back({prefix + ".post_attention_layernorm.weight", shape.n_embd, 1, nullptr, &mlp_norm});
  Append(mlp.Parts(shape, prefix + ".mlp."), &parts);
  return parts;
}

std::vector<const DraftMatrix*> DraftLayer::matrices() const {
  return {&attention.q, &attention.k, &attention.v, &attention.o, &mlp.gate, &mlp.up, &mlp.down};
}

Result<DraftBlock> ReadDraftLayerBlock(const DraftCheckpoint& checkpoint, const ModelSizes& target,
                                       const std::string& prefix) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  LS_ASSIGN(DraftBlock block, ReadDraftBlock(checkpoint, target, prefix + ".mlp.up_proj.weight"));
  if (checkpoint.config.rope_theta == 0.0 && target.rope.n_rot <= block.shape.head_dim) {
    block.rope = target.rope;
    block.rope.pairing = block.shape.pairing;
    block.shape.n_rot = target.rope.n_rot;
  }
  return block;
}

}  // namespace longspec
