// SPDX-License-Identifier: Apache-2.0
//
// A LongSpec draft model as files hold it: a Hugging Face folder (config.json and *.safetensors), a single
// .safetensors, or a GGUF file of architecture "longspec". All three hold the same tensors under the names of
// the published checkpoints, in their layout (rotary halves split, matrices (out, in)). Immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "longspec/status.h"
#include "tensor/tensor_view.h"

namespace longspec {

// general.architecture of a draft in a GGUF file.
inline constexpr char kLongspecArchitecture[] = "longspec";

// What the draft says of itself; zero or empty where it does not say.
struct LongspecConfig {
  int hidden_size = 0, n_head = 0, n_kv_head = 0, head_dim = 0, n_ff = 0, n_vocab = 0;
  int trained_positions = 0;  // positions it has seen in training
  int window = 512;           // self-attention sees this many tokens back
  double rope_theta = 0.0;
  std::string rope_scaling;  // "none", "linear", "yarn", "llama3", ...
  double rope_factor = 0.0;
};

struct LongspecCheckpoint {
  std::string path;
  LongspecConfig config;
  std::string config_json;          // as in the file; empty if it has none
  std::vector<TensorView> tensors;  // names without the prefix "model."
  std::vector<std::shared_ptr<const void>> owners;

  const TensorView* Find(std::string_view name) const;
};

// Tokens the draft's head is reduced to, one integer each (FR-Spec); absent: the whole vocabulary.
inline constexpr char kLongspecVocabTensor[] = "draft.vocab";

struct LongspecTensor {
  std::string name;
  bool required = true;  // cross_attn.k_proj and .v_proj exist in checkpoints and are never used
};
// The 20 tensors, in the order of their files.
std::vector<LongspecTensor> LongspecTensors();

// Checks names and types; shapes are checked against the target they are to serve.
Result<LongspecCheckpoint> OpenLongspecCheckpoint(const std::string& path);
// Of a GGUF file that is open.
Result<LongspecCheckpoint> LongspecCheckpointOf(std::shared_ptr<const GgufFile> file);

// `type`: what matrices are stored as; absent: as they are.
Status WriteLongspecGguf(const LongspecCheckpoint& checkpoint, std::optional<DType> type,
                         const std::string& path);
// A folder of config.json and model.safetensors, made if it is not there. Block types are decoded to F32.
Status WriteLongspecFolder(const LongspecCheckpoint& checkpoint, std::optional<DType> type,
                           const std::string& folder);

// Exposed for tests.
Result<LongspecConfig> ParseLongspecConfig(const std::string& json, const std::string& path);

}  // namespace longspec
