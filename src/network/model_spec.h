// SPDX-License-Identifier: Apache-2.0
//
// A model as a description: what each of its layers does, in which order, with which numbers. It is read from
// a file's metadata by the architecture's line (architecture.h); model_tensors.h says which tensors it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "kernels/ops.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "network/model_sizes.h"
#include "network/rope.h"

namespace longspec {

// What attention is in one kind of layer. A pass has a plan and angles for each kind.
struct AttentionSpec {
  int window = 0;      // positions that a row sees, its own and those right before it; 0: all before it
  float scale = 0.0F;  // on scores
  std::optional<RopeConfig> rope;  // where it is not the model's; as many values of a head are rotated
};

// The function of an MLP's gate: down(f(gate(x)) * up(x)).
enum class GateFunction : uint8_t { kSilu, kGelu };

struct LayerSpec {
  int attention = 0;  // which of ModelSpec::attentions
  bool qkv_bias = false;
  bool head_norms = false;    // each head of q and k is normalised before it is rotated
  bool branch_norms = false;  // what attention and the MLP make is normalised before it is added
  GateFunction gate = GateFunction::kSilu;
};

struct ModelSpec : ModelSizes {
  std::string architecture, name;
  std::vector<AttentionSpec> attentions;  // the kinds
  std::vector<LayerSpec> layers;          // (n_layer)
  float embedding_scale = 1.0F;           // on rows of the embedding, where they enter the first layer
  bool tied_embeddings = false;           // the LM head is the embedding matrix
  // How it is computed, where there is a choice.
  AttentionKind attention_kind = AttentionKind::kFlash;
  kernels::WeightFormat bf16_format = kernels::WeightFormat::kBF16;  // what BF16 matrices are multiplied as

  const AttentionSpec& attention_of(int layer) const {
    return attentions[static_cast<size_t>(layers[static_cast<size_t>(layer)].attention)];
  }
  // The rotation of a kind of layers.
  const RopeConfig& rope_of(const AttentionSpec& attention) const {
    return attention.rope ? *attention.rope : rope;
  }
  AttentionShape shape_of(const AttentionSpec& kind) const;
};

// Reads and checks the metadata, and every tensor's presence, shape and type. An unsupported architecture is
// named.
Result<ModelSpec> ReadModelSpec(const GgufFile& file, const RopeOptions& rope,
                                Bf16Arithmetic bf16_weights = Bf16Arithmetic::kF32,
                                AttentionKind attention = AttentionKind::kFlash);

// Operation -> arithmetic, as `longspec info` shows it ("matmul Q4_1" -> "q8"), but for
// attention's, which is the cache's.
std::vector<std::pair<std::string, std::string>> DescribeArithmetic(const ModelSpec& spec,
                                                                    const GgufFile& file);

}  // namespace longspec
