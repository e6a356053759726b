// SPDX-License-Identifier: Apache-2.0
//
// EAGLE draft models made ready for one target: one layer that predicts from the target's hidden states
// (features) and tokens, as published for EAGLE-1 and 2 (arXiv 2401.15077, 2406.16858; one form of files) and
// for EAGLE-3 (2503.01840). Immutable; shared by all drafters of that target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_weights.h"
#include "kernels/packing.h"
#include "longspec/status.h"
#include "model/shared_parts.h"
#include "model/target.h"

namespace longspec {

// Slot j holds feature f_j of position j and the token after it, x[j + 1]; what it computes predicts x[j +
// 2].
//   EAGLE    u = fc [E x ; f] + bias       z = u + attention(u)
//   EAGLE-3  g = fc [f of three layers]    z = g + attention([norm(E x) ; norm(g)])
//            or fc norm([f of three layers]), where a file has that norm
//   both     out = z + mlp(norm(z))
// `out` is the feature of the next slot of a draft (EAGLE-3: instead of g). EAGLE's logits are the target's
// head on `out` itself, EAGLE-3's a head of its own (or the target's, if it has none) on norm(out).
struct EagleModel {
  std::string path;
  std::string_view name;  // of its drafter
  DraftBlock block;
  Taps taps;                  // its features: the final hidden state, or the outputs of layers
  int trained_positions = 0;  // as longspec_trained_positions states them; 0: unknown

  AlignedBuffer memory;        // of all matrices
  kernels::PackedWeights fc;   // (n_embd, fc_inputs * n_embd)
  std::vector<float> fc_bias;  // (n_embd), or empty
  kernels::PackedWeights q, k, v, o, gate, up, down;
  std::vector<float> q_bias, k_bias, v_bias;
  std::vector<float> mlp_norm;

  // EAGLE-3. Empty in EAGLE.
  std::vector<float> token_norm, feature_norm, output_norm;
  std::vector<float> fused_norm;    // "norm_before_fc": of what fc reads, (n_taps * n_embd); or empty
  bool residual_is_normed = false;  // "norm_before_residual": z = norm(g) + ...
  kernels::PackedWeights own_head;

  DraftHead head;  // EAGLE-3: a view of its own, and the tokens it has (empty: all)

  bool is_eagle3() const { return !token_norm.empty(); }
  // Hidden states that make a feature.
  int n_taps() const { return taps.final_hidden ? 1 : static_cast<int>(taps.hidden_layers.size()); }
  size_t bytes() const { return memory.size() + head.memory.size(); }
};

// What a file's header says.
struct EagleFacts {
  DraftBlock block;
  int n_taps = 1;
  std::vector<int32_t> own_tokens;  // EAGLE-3: what its head is reduced to
  int64_t n_logits = 0;
};

// Each as learned_draft.h wants it.
struct Eagle1Model : EagleModel {
  static constexpr std::string_view kKind = "eagle";
  static Result<std::shared_ptr<const Eagle1Model>> Load(const DraftCheckpoint& checkpoint,
                                                         const std::string& weights,
                                                         const SharedParts& target);
  static Status CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
  static uint64_t Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const LlamaConfig& target, const TensorView& target_head);
  static Result<EagleFacts> Facts(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
};

struct Eagle3Model : EagleModel {
  static constexpr std::string_view kKind = "eagle3";
  static Result<std::shared_ptr<const Eagle3Model>> Load(const DraftCheckpoint& checkpoint,
                                                         const std::string& weights,
                                                         const SharedParts& target);
  static Status CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
  static uint64_t Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const LlamaConfig& target, const TensorView& target_head);
  static Result<EagleFacts> Facts(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
};

// Layers whose outputs are an EAGLE-3 draft's features, else 1, L / 2 - 1 and L - 4 of L layers. Its
// configuration names them as eagle_aux_hidden_state_layer_ids: within eagle_config by their outputs, as
// SGLang, SpecForge and ModelOpt write it; beside it by inputs, as vLLM and speculators do, where j is what
// layer j reads: the output of layer j - 1. Exposed for tests.
Result<std::vector<int>> Eagle3Layers(const DraftCheckpoint& checkpoint, const LlamaConfig& target);

// Tokens of an EAGLE-3 draft's head: i + d2t[i] for its row i, ascending. Empty: all of the target's. What
// d2t and t2d say must agree. Exposed for tests.
Result<std::vector<int32_t>> Eagle3Tokens(const DraftCheckpoint& checkpoint, int n_vocab);

}  // namespace longspec
