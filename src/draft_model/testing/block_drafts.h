// SPDX-License-Identifier: Apache-2.0
//
// For tests: early-exit, Beagle, Medusa and TokenSwift checkpoints with random weights, and the models as
// their specifications say them, in double precision and with no thought of speed: nothing is cached.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/reference_math.h"
#include "tensor/testing/values_of.h"

namespace longspec::testing {

// Heads of its own, others than the target's.
struct OwnHeads {
  int n_head = 2, n_kv_head = 1, head_dim = 32, n_ff = 96;
  bool bias = false;
  AttentionShape attention() const {
    return {.n_head = n_head, .n_kv_head = n_kv_head, .head_dim = head_dim};
  }
};

inline void AddLayer(TensorMaker& make, const ModelSizes& c, const OwnHeads& s, const std::string& layer,
                     const std::string& attention) {
  const int64_t d = c.n_embd, q = int64_t{s.n_head} * s.head_dim, kv = int64_t{s.n_kv_head} * s.head_dim;
  const std::string a = layer + attention;
  make.AddNorm(layer + "input_layernorm.weight", d);
  make.AddMatrix(a + "q_proj.weight", d, q);
  make.AddMatrix(a + "k_proj.weight", d, kv);
  make.AddMatrix(a + "v_proj.weight", d, kv);
  make.AddMatrix(a + "o_proj.weight", q, d);
  if (s.bias) {
    make.Add(a + "q_proj.bias", q, 1, 0, 0.3F);
    make.Add(a + "k_proj.bias", kv, 1, 0, 0.3F);
    make.Add(a + "v_proj.bias", kv, 1, 0, 0.3F);
  }
  make.AddNorm(layer + "post_attention_layernorm.weight", d);
  make.AddMatrix(layer + "mlp.gate_proj.weight", d, s.n_ff);
  make.AddMatrix(layer + "mlp.up_proj.weight", d, s.n_ff);
  make.AddMatrix(layer + "mlp.down_proj.weight", s.n_ff, d);
}

// `feature`: one that reads final states too.
inline DraftTensors RandomExit(const ModelSizes& c, const OwnHeads& s, uint64_t seed, bool feature = false) {
  DraftTensors draft;
  TensorMaker make(&draft, seed);
  AddLayer(make, c, s, "layers.0.", "self_attn.");
  make.AddNorm("norm.weight", c.n_embd);
  if (feature) make.AddMatrix("feature.weight", c.n_embd, c.n_embd);
  return draft;
}

inline DraftTensors RandomBeagle(const ModelSizes& c, const OwnHeads& s, uint64_t seed,
                                 bool state_norm = false) {
  DraftTensors draft;
  TensorMaker make(&draft, seed);
  AddLayer(make, c, s, "layer.", "cross_attn.");
  if (state_norm) make.AddNorm("layer.kv_layernorm.weight", c.n_embd);
  return draft;
}

// `own`: heads with an output matrix of their own.
inline DraftTensors RandomMedusa(const ModelSizes& c, int n_heads, uint64_t seed,
                                 const std::vector<int>& own = {}) {
  DraftTensors draft;
  TensorMaker make(&draft, seed);
  for (int i = 0; i < n_heads; ++i) {
    const std::string head = "medusa_head." + std::to_string(i) + ".";
    make.AddMatrix(head + "0.linear.weight", c.n_embd, c.n_embd);
    make.Add(head + "0.linear.bias", c.n_embd, 1, 0, 0.3F);
    if (std::ranges::find(own, i) != own.end()) make.Add(head + "1.weight", c.n_embd, c.n_vocab, 0, 0.3F);
  }
  return draft;
}

inline DraftTensors RandomTokenswift(const ModelSizes& c, int n_heads, uint64_t seed) {
  DraftTensors draft;
  TensorMaker make(&draft, seed);
  for (int i = 0; i < n_heads; ++i) {
    const std::string head = "medusa_layers." + std::to_string(i) + ".";
    make.AddMatrix(head + "linear.weight", c.n_embd, c.n_embd);
    make.AddNorm(head + "input_layernorm.weight", c.n_embd);
    make.AddNorm(head + "post_layernorm.weight", c.n_embd);
  }
  return draft;
}

// A folder as Hugging Face has it. Returns its path.
inline std::string WriteBlockDraft(const Folder& folder, const std::string& kind, const ModelSizes& c,
                                   const DraftTensors& draft, const OwnHeads& s = {},
                                   const std::vector<int64_t>& vocab = {},
                                   const std::string& more_config = "") {
  const auto n = [](const char* key, int value) {
    return ", \"" + std::string(key) + "\": " + std::to_string(value);
  };
  std::filesystem::create_directories(folder.File(kind));
  WriteDraft(draft, folder.File(kind) + "/model.safetensors", "", DType::kF32, vocab);
  std::ofstream(folder.File(kind) + "/config.json")
      << "{\"longspec_draft\": \"" << kind << "\"" << n("hidden_size", c.n_embd)
      << n("num_attention_heads", s.n_head) << n("num_key_value_heads", s.n_kv_head)
      << n("head_dim", s.head_dim) << n("intermediate_size", s.n_ff) << n("vocab_size", c.n_vocab)
      << more_config << "}\n";
  return folder.File(kind);
}

// States of the target at each of these tokens, computed anew: the output of a layer, or, if it is below 0,
// the final ones.
inline std::vector<Vec> StatesOf(TinyTarget& tiny, const std::vector<int32_t>& tokens, int layer) {
  const auto cache = tiny.NewCache(1000);
  const Taps taps = layer < 0 ? Taps{.final_hidden = true} : Taps{.hidden_layers = {layer}};
  auto rows = cache->Begin(static_cast<int>(tokens.size()));
  const ForwardSegment segment = {.tokens = tokens, .kv = &*rows, .logits = LogitsFor::kNone, .taps = &taps};
  const auto output = tiny.target().Forward({&segment, 1});
  EXPECT_TRUE(output.ok());
  const TargetOutput::Segment& out = output->segments[0];
  std::vector<Vec> states;
  for (int i = 0; i < std::ssize(tokens); ++i) {
    const auto state = ValuesOf((layer < 0 ? out.final_hidden : out.hidden[0]).From(i, 1));
    states.emplace_back(state.begin(), state.end());
  }
  return states;
}

class BlockReference : private ReferenceMath {
 public:
  BlockReference(const DraftTensors& draft, const OwnHeads& s, const SharedParts& target)
      : ReferenceMath(draft, target, s.attention(),
                      {.pairing = kernels::RopePairing::kHalfSplit, .n_rot = s.head_dim, .freq_factors = {}}),
        bias_(s.bias) {}

  // Logits after the last of these states of the target's exit layer. `finals`: its final states at the
  // positions before the root, which one with a feature reads. Keys of `unseen` positions are not seen.
  Vec Exit(std::vector<Vec> states, const std::vector<Vec>& finals, const std::set<int>& unseen = {}) const {
    std::vector<Vec> keys, values;
    Vec output;
    const bool reads_feature = d_.tensors.contains("feature.weight");
    for (size_t i = 0; i < states.size(); ++i) {
      const auto position = static_cast<int>(i);
      Vec x = states[i];
      if (reads_feature && i > 0)
        Add(x, Linear(i <= finals.size() ? finals[i - 1] : output, "feature", false));
      const Vec n = Norm(x, "layers.0.input_layernorm.weight");
      if (!unseen.contains(position)) AddKey(n, "layers.0.self_attn.", position, &keys, &values);
      if (i < finals.size()) continue;
      Vec q = Linear(n, "layers.0.self_attn.q_proj", bias_);
      Rotate(q, position);
      Add(x, Linear(Attend(q, keys, values), "layers.0.self_attn.o_proj", false));
      AddMlp(x, "layers.0.post_attention_layernorm.weight", "layers.0.");
      output = Norm(x, "norm.weight");
    }
    return TargetHead(output);
  }

  // The state of a token, which sees these states at the positions after `first`.
  Vec BeagleState(int32_t token, int position, const std::vector<Vec>& states, int first = 0) const {
    std::vector<Vec> keys, values;
    const bool normed = d_.tensors.contains("layer.kv_layernorm.weight");
    for (size_t i = 0; i < states.size(); ++i) {
      AddKey(normed ? Norm(states[i], "layer.kv_layernorm.weight") : states[i], "layer.cross_attn.",
             first + static_cast<int>(i), &keys, &values);
    }
    Vec x = Embedding(token);
    Vec q = Linear(Norm(x, "layer.input_layernorm.weight"), "layer.cross_attn.q_proj", bias_);
    Rotate(q, position);
    Add(x, Linear(Attend(q, keys, values), "layer.cross_attn.o_proj", false));
    AddMlp(x, "layer.post_attention_layernorm.weight", "layer.");
    return x;
  }
  Vec Head(const Vec& state) const { return TargetHead(state); }

  // Of head i, from the state of the last position.
  Vec Medusa(const Vec& state, size_t i) const {
    const std::string head = "medusa_head." + std::to_string(i) + ".";
    Vec x = Linear(state, head + "0.linear", true);
    for (double& v : x) v = v / (1.0 + std::exp(-v));
    Add(x, state);
    return d_.tensors.contains(head + "1.weight") ? Linear(x, head + "1", false) : TargetHead(x);
  }

  // Of head i, from the output of the target's last layer at the last position.
  Vec Tokenswift(Vec state, size_t i) const {
    for (size_t head = 0; head <= i; ++head) {
      const std::string name = "medusa_layers." + std::to_string(head) + ".";
      Add(state, Linear(Norm(state, name + "input_layernorm.weight"), name + "linear", false));
      if (head == i) return TargetHead(Norm(state, name + "post_layernorm.weight"));
    }
    return {};
  }

 private:
  void AddKey(const Vec& of, const std::string& attention, int position, std::vector<Vec>* keys,
              std::vector<Vec>* values) const {
    keys->push_back(Linear(of, attention + "k_proj", bias_));
    Rotate(keys->back(), position);
    values->push_back(Linear(of, attention + "v_proj", bias_));
  }

  bool bias_;
};

}  // namespace longspec::testing
