// SPDX-License-Identifier: Apache-2.0
//
// A Llama model's weights, packed. Immutable once loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/owned_bytes.h"
#include "kernels/packing.h"
#include "model/block.h"
#include "model/llama.h"

namespace longspec {

struct LlamaLayer {
  std::vector<float> attn_norm, ffn_norm;     // (n_embd)
  std::vector<float> q_bias, k_bias, v_bias;  // (n_head * head_dim), (n_head_kv * head_dim) twice, or empty
  std::vector<float> q_norm, k_norm;          // (head_dim) or empty
  kernels::PackedWeights q, k, v, attn_output, gate, up, down;
};

struct LlamaWeights {
  OwnedBytes memory;  // of all matrices
  std::vector<LlamaLayer> layers;
  std::vector<float> output_norm;  // (n_embd)
  kernels::PackedWeights output;   // (n_vocab, n_embd)
  InputForms input_forms;          // of the matrices
  TensorView embedding;            // rows are decoded from the mapped file as they are needed
  TensorView head;                 // what `output` was packed from, in that file
};

// Of `options`, the team, progress and what concerns the cache count.
Result<std::unique_ptr<const LlamaWeights>> LoadLlamaWeights(const GgufFile& file, const LlamaConfig& config,
                                                             const LlamaLoadOptions& options);

}  // namespace longspec
