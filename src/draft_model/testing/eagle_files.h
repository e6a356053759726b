// SPDX-License-Identifier: Apache-2.0
//
// For tests: EAGLE and EAGLE-3 checkpoints with random weights, and both models as their specification says
// them, in double precision and with no thought of speed: nothing is cached.
#pragma once

#include <string>
#include <vector>

#include "draft_model/draft_block.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/reference_math.h"

namespace longspec::testing {

// Heads of its own, others than the target's.
struct EagleShape {
  bool eagle3 = false;
  int n_head = 2, n_kv_head = 1, head_dim = 32, n_ff = 96;
  int n_taps = 3;    // EAGLE-3
  int n_tokens = 0;  // EAGLE-3: of its head; 0: all of the target's
  bool fc_bias = true, qkv_bias = false;
  bool norm_before_fc = false;  // EAGLE-3
};

inline DraftTensors RandomEagle(const ModelSizes& c, const EagleShape& s, uint64_t seed) {
  DraftTensors draft;
  TensorMaker make(&draft, seed);
  const int64_t d = c.n_embd, q = int64_t{s.n_head} * s.head_dim, kv = int64_t{s.n_kv_head} * s.head_dim;
  const int64_t n_in = s.eagle3 ? 2 * d : d;
  const std::string layer = s.eagle3 ? "midlayer." : "layers.0.";
  make.AddMatrix("fc.weight", (s.eagle3 ? s.n_taps : 2) * d, d);
  if (!s.eagle3 && s.fc_bias) make.Add("fc.bias", d, 1, 0, 0.3F);
  make.AddMatrix(layer + "self_attn.q_proj.weight", n_in, q);
  make.AddMatrix(layer + "self_attn.k_proj.weight", n_in, kv);
  make.AddMatrix(layer + "self_attn.v_proj.weight", n_in, kv);
  make.AddMatrix(layer + "self_attn.o_proj.weight", q, d);
  if (s.qkv_bias) {
    make.Add(layer + "self_attn.q_proj.bias", q, 1, 0, 0.3F);
    make.Add(layer + "self_attn.k_proj.bias", kv, 1, 0, 0.3F);
    make.Add(layer + "self_attn.v_proj.bias", kv, 1, 0, 0.3F);
  }
  make.AddMatrix(layer + "mlp.gate_proj.weight", d, s.n_ff);
  make.AddMatrix(layer + "mlp.up_proj.weight", d, s.n_ff);
  make.AddMatrix(layer + "mlp.down_proj.weight", s.n_ff, d);
  make.AddNorm(layer + "post_attention_layernorm.weight", d);
  if (!s.eagle3) return draft;
  make.AddNorm("midlayer.input_layernorm.weight", d);
  make.AddNorm("midlayer.hidden_norm.weight", d);
  make.AddNorm("norm.weight", d);
  if (s.norm_before_fc) make.AddNorm("input_norm.weight", s.n_taps * d);
  make.Add("lm_head.weight", d, s.n_tokens > 0 ? s.n_tokens : c.n_vocab, 0, 0.3F);
  return draft;
}

inline std::string EagleConfigJson(const ModelSizes& c, const EagleShape& s, const std::string& more = "") {
  const auto n = [](const char* key, int value) {
    return ", \"" + std::string(key) + "\": " + std::to_string(value);
  };
  return "{\"longspec_draft\": \"" + std::string(s.eagle3 ? "eagle3" : "eagle") + "\"" +
         n("hidden_size", c.n_embd) + n("num_attention_heads", s.n_head) +
         n("num_key_value_heads", s.n_kv_head) + n("head_dim", s.head_dim) + n("intermediate_size", s.n_ff) +
         n("vocab_size", c.n_vocab) + more + "}\n";
}

// `tokens`: of an EAGLE-3 draft's head, ascending (d2t and t2d); of an EAGLE draft's, draft.vocab. Empty:
// all. Returns the folder's path.
inline std::string WriteEagle(const Folder& folder, const std::string& name, const ModelSizes& c,
                              const EagleShape& s, const DraftTensors& draft,
                              const std::vector<int64_t>& tokens = {}, const std::string& more_config = "") {
  const std::string path = folder.File(name);
  std::filesystem::create_directories(path);
  if (!s.eagle3 || tokens.empty()) {
    WriteDraft(draft, path + "/model.safetensors", "", DType::kF32, tokens);
  } else {
    WriteDraft(draft, path + "/model.safetensors");
    SafetensorsWriter maps;
    std::vector<int64_t> d2t = tokens;
    std::vector<int8_t> t2d(static_cast<size_t>(c.n_vocab), 0);
    for (size_t i = 0; i < tokens.size(); ++i) {
      d2t[i] -= static_cast<int64_t>(i);
      t2d[static_cast<size_t>(tokens[i])] = 1;
    }
    maps.AddTensor("d2t", DType::kI64, {std::ssize(d2t)}, std::as_bytes(std::span(d2t)));
    maps.AddTensor("t2d", DType::kI8, {std::ssize(t2d)}, std::as_bytes(std::span(t2d)));
    EXPECT_TRUE(maps.Write(path + "/maps.safetensors").ok());
  }
  std::ofstream(path + "/config.json") << EagleConfigJson(c, s, more_config);
  return path;
}

// A token, and the feature of the position before it.
struct EagleSlot {
  int32_t token = 0;
  Vec feature;  // of the target: (n_taps * n_embd); of the draft: (n_embd)
  int position = 0;
};

class EagleReference : private ReferenceMath {
 public:
  EagleReference(const DraftTensors& draft, const EagleShape& shape, const SharedParts& target,
                 const RopeConfig& rope, bool residual_is_normed = false)
      : ReferenceMath(draft, target,
                      {.n_head = shape.n_head, .n_kv_head = shape.n_kv_head, .head_dim = shape.head_dim},
                      rope),
        s_(shape),
        normed_(residual_is_normed) {}

  // Output of the last slot, which sees all of them.
  Vec Output(const std::vector<EagleSlot>& slots) const {
    std::vector<Vec> keys, values;
    Vec q, x;
    for (const EagleSlot& slot : slots) {
      const Vec e = Embedding(slot.token);
      Vec input;
      if (s_.eagle3) {
        const bool of_target = slot.feature.size() != e.size();
        x = slot.feature;
        if (of_target && s_.norm_before_fc) x = Norm(x, "input_norm.weight");
        if (of_target) x = Linear(x, "fc", false);
        input = Norm(e, "midlayer.input_layernorm.weight");
        const Vec n = Norm(x, "midlayer.hidden_norm.weight");
        input.insert(input.end(), n.begin(), n.end());
        if (normed_) x = n;
      } else {
        Vec both = e;
        both.insert(both.end(), slot.feature.begin(), slot.feature.end());
        input = x = Linear(both, "fc", s_.fc_bias);
      }
      keys.push_back(Linear(input, Layer() + "self_attn.k_proj", s_.qkv_bias));
      Rotate(keys.back(), slot.position);
      values.push_back(Linear(input, Layer() + "self_attn.v_proj", s_.qkv_bias));
      q = Linear(input, Layer() + "self_attn.q_proj", s_.qkv_bias);
      Rotate(q, slot.position);
    }
    Add(x, Linear(Attend(q, keys, values), Layer() + "self_attn.o_proj", false));
    AddMlp(x, Layer() + "post_attention_layernorm.weight", Layer());
    return x;
  }

  // Log-probabilities of the head's rows.
  Vec LogProbs(const Vec& output) const {
    return LogSoftmax(s_.eagle3 ? Linear(Norm(output, "norm.weight"), "lm_head", false) : TargetHead(output));
  }

 private:
  std::string Layer() const { return s_.eagle3 ? "midlayer." : "layers.0."; }

  const EagleShape s_;
  const bool normed_;
};

}  // namespace longspec::testing
