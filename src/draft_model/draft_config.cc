// SPDX-License-Identifier: Apache-2.0
//
// config.json of a draft model: the target's configuration, as Hugging Face writes it.
#include <algorithm>

#include "base/status_macros.h"
#include "draft_model/draft_checkpoint.h"

namespace longspec {
namespace {

constexpr double kMostPositions = 1 << 30;

// "rope_theta" and "rope_scaling" until transformers 5, "rope_parameters" since.
Status ReadRope(const ConfigKeys& keys, DraftConfig* config) {
  LS_ASSIGN(config->rope_theta, keys.Positive("rope_theta"));
  LS_ASSIGN(ConfigKeys scaling, keys.Object("rope_scaling"));
  LS_ASSIGN(const ConfigKeys parameters, keys.Object("rope_parameters"));
  if (config->rope_theta == 0.0) {
    LS_ASSIGN(config->rope_theta, parameters.Positive("rope_theta"));
  }
  if (config->rope_theta == 0.0) config->rope_theta = 10000.0;
  if (scaling.empty()) scaling = parameters;
  LS_ASSIGN(std::string type, scaling.Text("rope_type"));
  if (type.empty()) {
    LS_ASSIGN(type, scaling.Text("type"));
  }
  config->rope_scaling = type.empty() || type == "default" ? "none" : type;
  LS_ASSIGN(config->rope_factor, scaling.Positive("factor"));
  LS_ASSIGN(config->rope_original_positions, scaling.Size("original_max_position_embeddings"));
  LS_ASSIGN(config->rope_beta_fast, scaling.Positive("beta_fast"));
  LS_ASSIGN(config->rope_beta_slow, scaling.Positive("beta_slow"));
  return {};
}

// Published configurations name the positions a model has before linear scaling stretches them (Vicuna-16k:
// 4096 and a factor of 4).
Status ReadTrainedPositions(const ConfigKeys& keys, DraftConfig* config) {
  LS_ASSIGN(config->trained_positions, keys.Size(kTrainedPositionsKey));
  if (config->trained_positions != 0) return {};
  LS_ASSIGN(const int unscaled, keys.Size("max_position_embeddings"));
  const bool is_scaled = config->rope_scaling == "linear" && config->rope_factor > 0.0;
  const double scaled = unscaled * (is_scaled ? config->rope_factor : 1.0);
  config->trained_positions = static_cast<int>(std::min(scaled, kMostPositions));
  return {};
}

}  // namespace

Result<DraftConfig> ReadDraftConfig(const ConfigKeys& keys) {
  DraftConfig config;
  LS_ASSIGN(config.kind, keys.Text("longspec_draft"));
  LS_ASSIGN(config.architectures, keys.Texts("architectures"));
  LS_ASSIGN(config.hidden_size, keys.Size("hidden_size"));
  LS_ASSIGN(config.n_head, keys.Size("num_attention_heads"));
  LS_ASSIGN(config.n_kv_head, keys.Size("num_key_value_heads"));
  LS_ASSIGN(config.head_dim, keys.Size("head_dim"));
  LS_ASSIGN(config.n_ff, keys.Size("intermediate_size"));
  LS_ASSIGN(config.n_vocab, keys.Size("vocab_size"));
  LS_ASSIGN(config.rms_eps, keys.Positive("rms_norm_eps"));
  if (config.n_kv_head == 0) config.n_kv_head = config.n_head;
  if (config.head_dim == 0 && config.n_head > 0) config.head_dim = config.hidden_size / config.n_head;
  LS_TRY(ReadRope(keys, &config));
  LS_TRY(ReadTrainedPositions(keys, &config));
  return config;
}

}  // namespace longspec
