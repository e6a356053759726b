// SPDX-License-Identifier: Apache-2.0
//
// Weights of the target's file as tensors in the layout of checkpoints.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "longspec/status.h"
#include "train/parameters.h"

namespace longspec::train {

// A matrix (n_rows, width) in f32, or a vector as one row.
Result<at::Tensor> LoadRows(const GgufFile& file, const std::string& name, int64_t n_rows, int64_t width);

// Rows of rotary heads, weights (n_rows, n_embd) and biases (n_rows), their halves split. kUnsupported of an
// architecture with more in a layer than llama, qwen2 and qwen3 have.
Result<at::Tensor> LoadHeads(const GgufFile& file, const FeatureTarget& target, const std::string& name,
                             int64_t n_rows);
Result<at::Tensor> LoadHeadBias(const GgufFile& file, const FeatureTarget& target, const std::string& name,
                                int64_t n_rows);

// Number of layers of the model in the file.
Result<int> CountLayers(const GgufFile& file);

// One tensor of a draft that begins as one of a file, its target's or another draft's.
struct TakenOver {
  std::string to, from;
  bool rotated = false;  // its rows are rotary heads: halves split, as checkpoints have them
  double scale = 1.0;
};
// The four projections of attention of a layer, and its biases where `to` has them too.
std::vector<TakenOver> AttentionOf(const Parameters& parameters, const std::string& to, int layer,
                                   double output_scale = 1.0);
// A block of the Llama kind with its norms.
std::vector<TakenOver> BlockOf(const Parameters& parameters, const std::string& prefix, int layer);
std::vector<TakenOver> MlpOf(const std::string& to, int layer, double output_scale = 1.0);
// Copies them. Biases that the file lacks stay; kUnsupported of rotated ones of an architecture with more
// in a layer than llama and qwen2 have.
Status TakeOver(const GgufFile& file, const FeatureTarget& target, const std::vector<TakenOver>& parts,
                const Parameters& parameters);

// Rows of heads whose rotary halves are split to rows whose pairs are neighbours, as files of architecture
// llama have them.
at::Tensor JoinPairs(const at::Tensor& rows, const FeatureTarget& target);

}  // namespace longspec::train
