// SPDX-License-Identifier: Apache-2.0
#include "network/model_tensors.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace longspec {
namespace {

enum class Width : uint8_t { kOne, kResidual, kQueries, kKeys, kHeadDim, kMlp };
enum class Where : uint8_t { kAlways, kBiases, kHeadNorms, kBranchNorms };

struct LayerTensor {
  TensorRole role;
  const char* name;  // after "blk.N."
  Width n_in, n_out = Width::kOne;
  Where where = Where::kAlways;
};

// In the order in which matrices lie in memory: that of their products in a pass.
constexpr LayerTensor kLayerTensors[] = {
    {TensorRole::kAttentionNorm, "attn_norm.weight", Width::kResidual},
    {TensorRole::kQuery, "attn_q.weight", Width::kResidual, Width::kQueries},
    {TensorRole::kKey, "attn_k.weight", Width::kResidual, Width::kKeys},
    {TensorRole::kValue, "attn_v.weight", Width::kResidual, Width::kKeys},
    {TensorRole::kAttentionOutput, "attn_output.weight", Width::kQueries, Width::kResidual},
    {TensorRole::kAttentionBranchNorm, "post_attention_norm.weight", Width::kResidual, Width::kOne,
     Where::kBranchNorms},
    {TensorRole::kMlpNorm, "ffn_norm.weight", Width::kResidual},
    {TensorRole::kGate, "ffn_gate.weight", Width::kResidual, Width::kMlp},
    {TensorRole::kUp, "ffn_up.weight", Width::kResidual, Width::kMlp},
    {TensorRole::kDown, "ffn_down.weight", Width::kMlp, Width::kResidual},
    {TensorRole::kMlpBranchNorm, "post_ffw_norm.weight", Width::kResidual, Width::kOne, Where::kBranchNorms},
    {TensorRole::kQueryBias, "attn_q.bias", Width::kQueries, Width::kOne, Where::kBiases},
    {TensorRole::kKeyBias, "attn_k.bias", Width::kKeys, Width::kOne, Where::kBiases},
    {TensorRole::kValueBias, "attn_v.bias", Width::kKeys, Width::kOne, Where::kBiases},
    {TensorRole::kQueryNorm, "attn_q_norm.weight", Width::kHeadDim, Width::kOne, Where::kHeadNorms},
    {TensorRole::kKeyNorm, "attn_k_norm.weight", Width::kHeadDim, Width::kOne, Where::kHeadNorms},
};

int64_t WidthOf(const ModelSizes& sizes, Width width) {
  switch (width) {
    case Width::kOne:
      return 1;
    case Width::kResidual:
      return sizes.n_embd;
    case Width::kQueries:
      return int64_t{sizes.n_head} * sizes.head_dim;
    case Width::kKeys:
      return int64_t{sizes.n_head_kv} * sizes.head_dim;
    case Width::kHeadDim:
      return sizes.head_dim;
    case Width::kMlp:
      return sizes.n_ff;
  }
  return 0;
}

bool Has(const LayerSpec& layer, Where where) {
  switch (where) {
    case Where::kAlways:
      return true;
    case Where::kBiases:
      return layer.qkv_bias;
    case Where::kHeadNorms:
      return layer.head_norms;
    case Where::kBranchNorms:
      return layer.branch_norms;
  }
  return false;
}

}  // namespace

std::string TensorName(TensorRole role, int layer) {
  switch (role) {
    case TensorRole::kEmbedding:
      return "token_embd.weight";
    case TensorRole::kOutputNorm:
      return "output_norm.weight";
    case TensorRole::kHead:
      return "output.weight";
    default:
      return "blk." + std::to_string(layer) + "." +
             std::ranges::find(kLayerTensors, role, &LayerTensor::role)->name;
  }
}

std::vector<TensorSpec> TensorsOf(const ModelSpec& spec) {
  std::vector<TensorSpec> tensors;
  const auto add = [&](TensorRole role, int64_t n_in, int64_t n_out = 1) {
    tensors.push_back({.name = TensorName(role), .role = role, .n_in = n_in, .n_out = n_out});
  };
  add(TensorRole::kEmbedding, spec.n_embd, spec.n_vocab);
  for (int layer = 0; layer < spec.n_layer; ++layer) {
    for (const LayerTensor& tensor : kLayerTensors) {
      if (!Has(spec.layers[static_cast<size_t>(layer)], tensor.where)) continue;
      tensors.push_back({.name = TensorName(tensor.role, layer),
                         .role = tensor.role,
                         .layer = layer,
                         .n_in = WidthOf(spec, tensor.n_in),
                         .n_out = WidthOf(spec, tensor.n_out)});
    }
  }
  add(TensorRole::kOutputNorm, spec.n_embd);
  add(TensorRole::kHead, spec.n_embd, spec.n_logits);
  if (spec.tied_embeddings) tensors.back().name = tensors.front().name;
  return tensors;
}

std::vector<TensorSpec> ProductsOf(const ModelSpec& spec) {
  std::vector<TensorSpec> products;
  std::ranges::copy_if(TensorsOf(spec), std::back_inserter(products), &TensorSpec::is_product);
  return products;
}

const TensorView& TensorIn(const GgufFile& file, const TensorSpec& tensor) {
  const TensorView* view = file.FindTensor(tensor.name);
  LS_CHECK(view != nullptr);
  return *view;
}

const TensorView* HeadIn(const GgufFile& file) {
  const TensorView* own = file.FindTensor(TensorName(TensorRole::kHead));
  return own != nullptr ? own : file.FindTensor(TensorName(TensorRole::kEmbedding));
}

}  // namespace longspec
