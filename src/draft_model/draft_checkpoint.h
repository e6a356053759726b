// SPDX-License-Identifier: Apache-2.0
//
// A learned draft as files hold it: a Hugging Face folder (config.json and *.safetensors), a single
// .safetensors, or a GGUF file whose architecture is the draft's kind (draft_kinds.h). All three hold the
// same tensors under the names of the published checkpoints, in their layout (rotary halves split, matrices
// (out, in)). Immutable once open.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "draft_model/config_keys.h"
#include "draft_model/draft_kinds.h"
#include "formats/draft_names.h"
#include "formats/gguf.h"
#include "longspec/status.h"
#include "tensor/tensor_view.h"

namespace longspec {

// What every kind's configuration may say; zero or empty where it does not. Keys of one kind alone are read
// from DraftCheckpoint::keys by who reads that kind.
struct DraftConfig {
  std::string kind;                        // "longspec_draft"
  std::vector<std::string> architectures;  // Hugging Face's
  int hidden_size = 0, n_head = 0, n_kv_head = 0, head_dim = 0, n_ff = 0, n_vocab = 0;
  double rms_eps = 0.0;
  int trained_positions =
      0;  // positions it has seen in training, by its own key or as Hugging Face states it
  // Rotary positions. A file without a configuration leaves all of it open.
  double rope_theta = 0.0;
  std::string rope_scaling;  // "none", "linear", "yarn", "llama3", ...
  double rope_factor = 0.0;
  int rope_original_positions = 0;
  double rope_beta_fast = 0.0, rope_beta_slow = 0.0;  // YaRN
};

struct DraftCheckpoint {
  std::string path;
  const DraftKind* kind = nullptr;  // never null once open
  DraftConfig config;
  ConfigKeys keys;                  // of config.json
  std::string config_json;          // as in the file; empty if it has none
  std::vector<TensorView> tensors;  // names without the prefix "model."
  std::vector<std::shared_ptr<const void>> owners;

  const TensorView* Find(std::string_view name) const;
};

// Tells the kind, and checks names and types; shapes are checked against the target they are to serve.
Result<DraftCheckpoint> OpenDraftCheckpoint(const std::string& path);
// Of a GGUF file that is open.
Result<DraftCheckpoint> DraftCheckpointOf(std::shared_ptr<const GgufFile> file);

// Refuses a type whose blocks the tensor's rows do not fill. `path`: of its file.
Status CheckRowsFit(const std::string& path, const TensorView& tensor, DType type);

// `type`: what matrices are stored as; absent: as they are.
Status WriteDraftGguf(const DraftCheckpoint& checkpoint, std::optional<DType> type, const std::string& path);
// A folder of config.json and model.safetensors, made if it is not there. Block types are decoded to F32.
Status WriteDraftFolder(const DraftCheckpoint& checkpoint, std::optional<DType> type,
                        const std::string& folder);

Result<DraftConfig> ReadDraftConfig(const ConfigKeys& keys);

}  // namespace longspec
