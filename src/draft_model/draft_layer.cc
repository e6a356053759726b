// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_layer.h"

#include "base/status_macros.h"

namespace longspec {

std::vector<DraftPart> DraftLayer::Parts(const BlockShape& shape, const std::string& prefix,
                                         const std::string& attention) {
  const int64_t d = shape.n_embd, q_width = shape.q_width(), kv = shape.kv_width(), ff = shape.n_ff;
  const std::string a = prefix + "." + attention + ".";
  return {{prefix + ".input_layernorm.weight", d, 1, nullptr, &attention_norm},
          {a + "q_proj.weight", d, q_width, &q},
          {a + "k_proj.weight", d, kv, &k},
          {a + "v_proj.weight", d, kv, &v},
          {a + "o_proj.weight", q_width, d, &o},
          {a + "q_proj.bias", q_width, 1, nullptr, &q_bias},
          {a + "k_proj.bias", kv, 1, nullptr, &k_bias},
          {a + "v_proj.bias", kv, 1, nullptr, &v_bias},
          {prefix + ".post_attention_layernorm.weight", d, 1, nullptr, &mlp_norm},
          {prefix + ".mlp.gate_proj.weight", d, ff, &gate},
          {prefix + ".mlp.up_proj.weight", d, ff, &up},
          {prefix + ".mlp.down_proj.weight", ff, d, &down}};
}

AttentionWeights DraftLayer::attention() const {
  return {.norm = attention_norm,
          .q = &q.matrix(),
          .k = &k.matrix(),
          .v = &v.matrix(),
          .output = &o.matrix(),
          .q_bias = q_bias,
          .k_bias = k_bias,
          .v_bias = v_bias};
}

AttentionWeights DraftLayer::keys(std::span<const float> norm) const {
  return {.norm = norm, .k = &k.matrix(), .v = &v.matrix(), .k_bias = k_bias, .v_bias = v_bias};
}

MlpWeights DraftLayer::mlp() const {
  return {.norm = mlp_norm, .gate = &gate.matrix(), .up = &up.matrix(), .down = &down.matrix()};
}

InputForms DraftLayer::forms() const {
  InputForms forms;
  for (const kernels::PackedWeights* w : {&q, &k, &v, &o, &gate, &up, &down}) forms.Add(w->matrix());
  return forms;
}

Result<DraftBlock> ReadDraftLayerBlock(const DraftCheckpoint& checkpoint, const LlamaConfig& target,
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
