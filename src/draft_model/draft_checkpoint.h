// SPDX-License-Identifier: Apache-2.0
//
// A learned draft as files hold it: a Hugging Face folder (config.json and *.safetensors), a single
// .safetensors, or a GGUF file whose architecture is the draft's kind. All three hold the
// same tensors under the names of the published checkpoints, in their layout (rotary halves split, matrices
// (out, in)). Immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "draft_model/config_keys.h"
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

struct DraftMatrix;  // draft_model/draft_weights.h

enum class DraftHolds : uint8_t {
  kWeights,
  kTokens,  // I32 or I64: tokens, or offsets of tokens
  kMask     // a truth value for each token: BOOL or I8
};

// Checkpoints pair rotated value i of a head with value i + n_rot / 2. Rows of a query or key projection that
// are to meet the target's keys change places where the target pairs 2i with 2i + 1; a draft with keys of its
// own says kHalfSplit in its BlockShape instead.
enum class DraftRows : uint8_t { kAsStored, kAsTargetRotates };

// A tensor of a kind of draft: its name, its shape for a target, and which matrix or vector of the model it
// becomes.
struct DraftPart {
  std::string tensor;
  int64_t n_in = 0;               // 0: whoever reads it checks its shape
  int64_t n_out = 1;              // 1: a vector
  DraftMatrix* matrix = nullptr;  // where it goes; both null: only its shape is checked
  std::vector<float>* vector = nullptr;
  DraftRows rows = DraftRows::kAsStored;
  bool required = true;  // a checkpoint without it is refused; one that is not required may be left out
  DraftHolds holds = DraftHolds::kWeights;  // of anything else only the type is checked
};

struct DraftKind;

struct DraftCheckpoint {
  std::string path;
  const DraftKind* kind = nullptr;  // never null once open
  DraftConfig config;
  ConfigKeys keys;                  // of config.json
  std::string config_json;          // as in the file; empty if it has none
  std::vector<TensorView> tensors;  // names without the prefix "model."
  std::vector<std::shared_ptr<const void>> owners;

  const TensorView* Find(std::string_view name) const;
  bool HasPrefix(std::string_view prefix) const;  // of the name of a tensor
};

struct DraftKind {
  std::string_view name;  // general.architecture of GGUF files, "longspec_draft" of config.json
  // Whether a checkpoint that does not say so itself is one, by its tensors and configuration. At most one
  // kind recognises a checkpoint.
  bool (*recognise)(const DraftCheckpoint& checkpoint);
  // What its files hold, besides kDraftVocabTensor. The parts go nowhere.
  std::vector<DraftPart> (*tensors)(const DraftCheckpoint& checkpoint);
  // Its LM head is the target's: kDraftVocabTensor names the rows that it is reduced to.
  bool head_of_target = true;
  // A tensor's name here, of one that some published files have; null: there are no others.
  std::string (*rename)(const std::string& name) = nullptr;
};

// Those of the table of drafters (draft_model/registry.h).
std::vector<const DraftKind*> DraftKinds();
const DraftKind* FindDraftKind(std::string_view name);  // null if there is none
std::string DraftKindNames();                           // "longspec, eagle, ..."

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
