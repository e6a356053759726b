// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a model, one line each. By this table files are checked, memory is planned, weights are
// loaded, arithmetic is told, and the trainer finds what it takes over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "network/model_spec.h"

namespace longspec {

enum class TensorRole : uint8_t {
  kEmbedding,  // (n_vocab, n_embd); rows are decoded from the file as they are needed
  // Of each layer.
  kAttentionNorm,        // (n_embd), of attention's input
  kQuery,                // (n_head * head_dim, n_embd)
  kKey,                  // (n_head_kv * head_dim, n_embd)
  kValue,                // the same
  kAttentionOutput,      // (n_embd, n_head * head_dim)
  kAttentionBranchNorm,  // (n_embd), of what attention adds
  kMlpNorm,              // (n_embd), of the MLP's input
  kGate,                 // (n_ff, n_embd)
  kUp,                   // the same
  kDown,                 // (n_embd, n_ff)
  kMlpBranchNorm,        // (n_embd), of what the MLP adds
  kQueryBias,            // (n_head * head_dim)
  kKeyBias,              // (n_head_kv * head_dim)
  kValueBias,            // the same
  kQueryNorm,            // (head_dim)
  kKeyNorm,              // (head_dim)
  // Of the model.
  kOutputNorm,  // (n_embd)
  kHead,        // (n_logits, n_embd); the embedding's where they are tied
};
inline constexpr int kTensorRoles = static_cast<int>(TensorRole::kHead) + 1;

struct TensorSpec {
  std::string name;  // in GGUF files
  TensorRole role = TensorRole::kEmbedding;
  int layer = -1;     // -1: of the model
  int64_t n_in = 0;   // shape[0]
  int64_t n_out = 1;  // rows; 1 for a vector
  bool is_matrix() const { return n_out > 1; }
  bool is_product() const { return is_matrix() && role != TensorRole::kEmbedding; }
};

// "blk.3.attn_q.weight"; of roles of the model, whose head is a matrix of its own, `layer` does not count.
std::string TensorName(TensorRole role, int layer = -1);

// All tensors of a model, matrices in the order in which they lie in memory.
std::vector<TensorSpec> TensorsOf(const ModelSpec& spec);
// The matrices that rows are multiplied with.
std::vector<TensorSpec> ProductsOf(const ModelSpec& spec);

// REQUIRES: the file has it, as ReadModelSpec has checked.
const TensorView& TensorIn(const GgufFile& file, const TensorSpec& tensor);
// The LM head of a file, which may be its embedding. Null: it has neither.
const TensorView* HeadIn(const GgufFile& file);

}  // namespace longspec
