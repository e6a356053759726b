// SPDX-License-Identifier: Apache-2.0
#include "draft_model/eagle_model.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "base/status_macros.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

constexpr int kMostTaps = 8;
constexpr char kFusedNorm[] = "input_norm.weight";
constexpr char kFrequencyFactors[] = "rope_freqs.weight";

// What both have, of the layer whose tensors begin with `prefix` and whose attention reads `n_in` values.
std::vector<DraftPart> LayerParts(const std::string& prefix, const BlockShape& s, int64_t n_in,
                                  EagleModel* m) {
  const int64_t d = s.n_embd, q = s.q_width(), kv = s.kv_width(), ff = s.n_ff;
  return {{prefix + "self_attn.q_proj.weight", n_in, q, &m->q},
          {prefix + "self_attn.k_proj.weight", n_in, kv, &m->k},
          {prefix + "self_attn.v_proj.weight", n_in, kv, &m->v},
          {prefix + "self_attn.o_proj.weight", q, d, &m->o},
          {prefix + "self_attn.q_proj.bias", q, 1, nullptr, &m->q_bias},
          {prefix + "self_attn.k_proj.bias", kv, 1, nullptr, &m->k_bias},
          {prefix + "self_attn.v_proj.bias", kv, 1, nullptr, &m->v_bias},
          {prefix + "mlp.gate_proj.weight", d, ff, &m->gate},
          {prefix + "mlp.up_proj.weight", d, ff, &m->up},
          {prefix + "mlp.down_proj.weight", ff, d, &m->down},
          {prefix + "post_attention_layernorm.weight", d, 1, nullptr, &m->mlp_norm}};
}

// The embedding is the target's; a copy that some files have must at least be as large.
DraftPart EmbeddingPart(const LlamaConfig& target) {
  return {"embed_tokens.weight", target.n_embd, target.n_vocab};
}

std::vector<DraftPart> Eagle1Parts(const EagleFacts& facts, const LlamaConfig& target, EagleModel* m) {
  const int64_t d = target.n_embd;
  std::vector<DraftPart> parts = LayerParts("layers.0.", facts.block.shape, d, m);
  parts.push_back({"fc.weight", 2 * d, d, &m->fc});
  parts.push_back({"fc.bias", d, 1, nullptr, &m->fc_bias});
  parts.push_back(EmbeddingPart(target));
  return parts;
}

std::vector<DraftPart> Eagle3Parts(const EagleFacts& facts, const LlamaConfig& target, EagleModel* m) {
  const int64_t d = target.n_embd;
  std::vector<DraftPart> parts = LayerParts("midlayer.", facts.block.shape, 2 * d, m);
  parts.push_back({"fc.weight", facts.n_taps * d, d, &m->fc});
  parts.push_back({"midlayer.input_layernorm.weight", d, 1, nullptr, &m->token_norm});
  parts.push_back({"midlayer.hidden_norm.weight", d, 1, nullptr, &m->feature_norm});
  parts.push_back({"norm.weight", d, 1, nullptr, &m->output_norm});
  parts.push_back({kFusedNorm, facts.n_taps * d, 1, nullptr, &m->fused_norm});
  parts.push_back({"lm_head.weight", d, facts.n_logits, &m->own_head});
  parts.push_back(EmbeddingPart(target));
  return parts;
}

// Sets what a file says besides its tensors. `model` is one of both.
template <typename Model>
Result<std::shared_ptr<Model>> Begin(const DraftCheckpoint& checkpoint, const EagleFacts& facts) {
  auto model = std::make_shared<Model>();
  model->path = checkpoint.path;
  model->name = Model::kKind;
  model->block = facts.block;
  LS_ASSIGN(model->trained_positions, checkpoint.keys.Size(kTrainedPositionsKey));
  return model;
}

Status NoMemory(const DraftCheckpoint& checkpoint) {
  return ResourceExhausted(checkpoint.path + ": no memory for the draft model's weights");
}

}  // namespace

// --- EAGLE-1 and 2. ---

Result<EagleFacts> Eagle1Model::Facts(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_TRY(CheckDraftWidths(checkpoint, target));
  EagleFacts facts;
  LS_ASSIGN(facts.block, ReadDraftBlock(checkpoint, target, "layers.0.mlp.up_proj.weight"));
  facts.n_logits = DraftHeadRows(checkpoint, target);
  return facts;
}

Status Eagle1Model::CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_ASSIGN(const EagleFacts facts, Facts(checkpoint, target));
  EagleModel unused;
  return CheckDraftShapes(checkpoint, Eagle1Parts(facts, target, &unused));
}

uint64_t Eagle1Model::Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                            const LlamaConfig& target, const TensorView& target_head) {
  EagleModel unused;
  return DraftMatrixBytes(checkpoint, Eagle1Parts({}, target, &unused), weights) +
         DraftHeadBytes(checkpoint, weights, target_head);
}

Result<std::shared_ptr<const Eagle1Model>> Eagle1Model::Load(const DraftCheckpoint& checkpoint,
                                                             const std::string& weights,
                                                             const SharedParts& target) try {
  LS_TRY(CheckDraftWeights(weights));
  LS_TRY(CheckFit(checkpoint, *target.config));
  LS_ASSIGN(const EagleFacts facts, Facts(checkpoint, *target.config));
  LS_ASSIGN(auto model, Begin<Eagle1Model>(checkpoint, facts));
  model->taps.final_hidden = true;
  LS_TRY(LoadDraftHead(checkpoint, weights, target, &model->head));
  const std::vector<DraftPart> parts = Eagle1Parts(facts, *target.config, model.get());
  LS_TRY(LoadDraftParts(checkpoint, parts, weights, target, &model->memory));
  return std::shared_ptr<const Eagle1Model>(std::move(model));
} catch (const std::bad_alloc&) {
  return NoMemory(checkpoint);
}

// --- EAGLE-3. ---

namespace {

// By outputs, as the file says it; none: it does not.
Result<std::vector<int>> NamedLayers(const DraftCheckpoint& checkpoint, const char* key) {
  LS_ASSIGN(const ConfigKeys nested, checkpoint.keys.Object("eagle_config"));
  LS_ASSIGN(std::vector<int> outputs, nested.Indices(key));
  if (!outputs.empty()) return outputs;
  LS_ASSIGN(const std::vector<int> inputs, checkpoint.keys.Indices(key));
  for (const int input : inputs) {
    if (input == 0) {
      return Unsupported(checkpoint.path + ": \"" + key + "\" beside eagle_config numbers layers by what " +
                         "they read, and 0 is the embedding, which is not read");
    }
    outputs.push_back(input - 1);
  }
  return outputs;
}

// What is said and what is there must agree; a file that says nothing has what its tensors are.
Status CheckNorms(const DraftCheckpoint& checkpoint) {
  LS_TRY(checkpoint.keys.Flag("norm_before_residual", false).status());
  const bool has = checkpoint.Find(kFusedNorm) != nullptr;
  LS_ASSIGN(const bool said, checkpoint.keys.Flag("norm_before_fc", has));
  if (said != has) {
    return Corrupt(checkpoint.path + ": \"norm_before_fc\" is " + (said ? "true" : "false") +
                   ", but tensor " + kFusedNorm + (has ? " is there" : " is missing"));
  }
  for (const char* key : {"fc_norm", "norm_output"}) {
    LS_ASSIGN(const bool wanted, checkpoint.keys.Flag(key, false));
    if (!wanted) continue;
    return Unsupported(checkpoint.path + ": \"" + key + "\": EAGLE-3.1's norms are not supported");
  }
  return {};
}

// Divisors of the frequencies, as llama.cpp's files have them.
Status AddFrequencyFactors(const DraftCheckpoint& checkpoint, RopeConfig* rope) {
  const TensorView* const factors = checkpoint.Find(kFrequencyFactors);
  if (factors == nullptr) return {};
  rope->freq_factors.resize(static_cast<size_t>(rope->n_rot) / 2);
  if (factors->dtype != DType::kF32 || factors->n_elements() != std::ssize(rope->freq_factors)) {
    return Corrupt(checkpoint.path + ": tensor " + kFrequencyFactors + " must hold " +
                   std::to_string(rope->freq_factors.size()) + " F32 values");
  }
  DequantizeRow(DType::kF32, factors->data, factors->n_elements(), rope->freq_factors.data());
  const auto usable = [](float factor) { return std::isfinite(factor) && factor > 0; };
  if (std::ranges::all_of(rope->freq_factors, usable)) return {};
  return Corrupt(checkpoint.path + ": tensor " + kFrequencyFactors + " holds a factor that is not positive");
}

}  // namespace

Result<std::vector<int>> Eagle3Layers(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  constexpr char kKey[] = "eagle_aux_hidden_state_layer_ids";
  LS_ASSIGN(std::vector<int> layers, NamedLayers(checkpoint, kKey));
  if (layers.empty()) layers = {1, target.n_layer / 2 - 1, target.n_layer - 4};
  for (const int layer : layers) {
    if (layer >= 0 && layer < target.n_layer) continue;
    return Unsupported(checkpoint.path +
                       ": the draft model does not fit the target: it reads the output of layer " +
                       std::to_string(layer) + ", the target has " + std::to_string(target.n_layer) +
                       " layers (\"" + kKey + "\")");
  }
  if (layers.size() > kMostTaps) {
    return Unsupported(checkpoint.path + ": reads the outputs of " + std::to_string(layers.size()) +
                       " layers, at most " + std::to_string(kMostTaps) + " are supported");
  }
  return layers;
}

Result<std::vector<int32_t>> Eagle3Tokens(const DraftCheckpoint& checkpoint, int n_vocab) {
  const TensorView *offsets = checkpoint.Find("d2t"), *mask = checkpoint.Find("t2d");
  std::vector<int32_t> tokens;
  if (offsets == nullptr) return tokens;
  int64_t before = -1, row = 0;
  for (const int64_t offset : DraftTokens(*offsets)) {
    const int64_t token = offset >= -n_vocab && offset <= n_vocab ? row + offset : -1;
    if (token <= before || token >= n_vocab) {
      return Corrupt(checkpoint.path + ": tensor d2t: row " + std::to_string(row) + " stands for token " +
                     std::to_string(token) + ", which must be more than the row before's and less than " +
                     std::to_string(n_vocab));
    }
    tokens.push_back(static_cast<int32_t>(token));
    before = token;
    ++row;
  }
  if (mask == nullptr) return tokens;
  size_t next = 0;
  for (int64_t token = 0; token < mask->n_elements(); ++token) {
    const bool has = next < tokens.size() && tokens[next] == token;
    if (has) ++next;
    if (has == (mask->data[token] != std::byte{0})) continue;
    return Corrupt(checkpoint.path + ": tensors d2t and t2d disagree about token " + std::to_string(token));
  }
  if (next < tokens.size()) {
    return Corrupt(checkpoint.path + ": tensor t2d ends before token " + std::to_string(tokens[next]));
  }
  return tokens;
}

Result<EagleFacts> Eagle3Model::Facts(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_ASSIGN(const int target_width, checkpoint.keys.Size("target_hidden_size"));
  LS_TRY(CheckDraftSize(checkpoint, "hidden size of its target", target_width, target.n_embd));
  LS_TRY(CheckDraftWidths(checkpoint, target));
  EagleFacts facts;
  LS_ASSIGN(facts.block, ReadDraftBlock(checkpoint, target, "midlayer.mlp.up_proj.weight"));
  LS_TRY(AddFrequencyFactors(checkpoint, &facts.block.rope));
  LS_ASSIGN(const std::vector<int> layers, Eagle3Layers(checkpoint, target));
  facts.n_taps = static_cast<int>(layers.size());
  LS_ASSIGN(facts.own_tokens, Eagle3Tokens(checkpoint, target.n_vocab));
  facts.n_logits = facts.own_tokens.empty() ? target.n_vocab : std::ssize(facts.own_tokens);
  if (!facts.own_tokens.empty() && checkpoint.Find("lm_head.weight") == nullptr) {
    return Corrupt(checkpoint.path +
                   ": tensor d2t says what the rows of lm_head.weight are, which is missing");
  }
  return facts;
}

Status Eagle3Model::CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target) {
  LS_ASSIGN(const EagleFacts facts, Facts(checkpoint, target));
  LS_TRY(CheckNorms(checkpoint));
  EagleModel unused;
  return CheckDraftShapes(checkpoint, Eagle3Parts(facts, target, &unused));
}

uint64_t Eagle3Model::Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                            const LlamaConfig& target, const TensorView&) {
  EagleModel unused;
  return DraftMatrixBytes(checkpoint, Eagle3Parts({}, target, &unused), weights);
}

Result<std::shared_ptr<const Eagle3Model>> Eagle3Model::Load(const DraftCheckpoint& checkpoint,
                                                             const std::string& weights,
                                                             const SharedParts& target) try {
  LS_TRY(CheckDraftWeights(weights));
  LS_TRY(CheckFit(checkpoint, *target.config));
  LS_ASSIGN(EagleFacts facts, Facts(checkpoint, *target.config));
  LS_ASSIGN(auto model, Begin<Eagle3Model>(checkpoint, facts));
  LS_ASSIGN(model->taps.hidden_layers, Eagle3Layers(checkpoint, *target.config));
  LS_ASSIGN(model->residual_is_normed, checkpoint.keys.Flag("norm_before_residual", false));
  const std::vector<DraftPart> parts = Eagle3Parts(facts, *target.config, model.get());
  LS_TRY(LoadDraftParts(checkpoint, parts, weights, target, &model->memory));
  const bool has_head = checkpoint.Find("lm_head.weight") != nullptr;
  model->head.matrix = has_head ? model->own_head.matrix() : *target.output;
  model->head.vocab = std::move(facts.own_tokens);
  return std::shared_ptr<const Eagle3Model>(std::move(model));
} catch (const std::bad_alloc&) {
  return NoMemory(checkpoint);
}

}  // namespace longspec
