// SPDX-License-Identifier: Apache-2.0
#include "train/target_weights.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/status_macros.h"
#include "network/architecture.h"
#include "network/model_tensors.h"
#include "tensor/dequantize.h"

namespace longspec::train {
namespace {

// For each row of split halves the row of neighbouring pairs that it is.
std::vector<int64_t> SplitOrder(int64_t n_rows, const FeatureTarget& t) {
  const auto half = static_cast<int64_t>(t.rope_frequencies.size());
  std::vector<int64_t> order;
  for (int64_t head = 0; head < n_rows; head += t.head_dim) {
    for (int64_t i = 0; i < half; ++i) order.push_back(head + 2 * i);
    for (int64_t i = 0; i < half; ++i) order.push_back(head + 2 * i + 1);
    for (int64_t i = 2 * half; i < t.head_dim; ++i) order.push_back(head + i);
  }
  return order;
}

// Whether the file has rotary pairs as neighbours. kUnsupported, saying what is done with layers of which
// architectures, of those that do more than `known` tells.
Result<bool> HasPairs(const GgufFile& file, bool (Architecture::*known)() const, const char* what) {
  LS_ASSIGN(const std::string name, file.GetString("general.architecture"));
  const Architecture* architecture = FindArchitecture(name);
  if (architecture != nullptr && (architecture->*known)()) {
    return architecture->pairing == kernels::RopePairing::kAdjacent;
  }
  return Unsupported(file.path() + ": layers of architectures " + what + ", not of " + name);
}

// Of layers whose heads are loaded as they are.
Result<bool> HasPairsToLoad(const GgufFile& file) {
  return HasPairs(file, &Architecture::is_plain_but_for_head_norms, "llama, qwen2 and qwen3 can be run");
}

// Of layers whose weights another block is to begin with, which has no norms of heads.
Result<bool> HasPairsToTakeOver(const GgufFile& file) {
  return HasPairs(file, &Architecture::is_plain, "llama and qwen2 can be taken over");
}

at::Tensor SplitPairs(const at::Tensor& rows, const FeatureTarget& target) {
  return rows.index_select(0, at::tensor(SplitOrder(rows.size(0), target)));
}

}  // namespace

Result<at::Tensor> LoadRows(const GgufFile& file, const std::string& name, int64_t n_rows, int64_t width) {
  const TensorView* view = file.FindTensor(name);
  if (view == nullptr) return Corrupt(file.path() + ": tensor " + name + " is missing");
  if (view->shape[0] != width || view->n_rows() != n_rows || !CanDequantize(view->dtype)) {
    return Corrupt(file.path() + ": tensor " + name + " does not have the features' shape of " +
                   std::to_string(n_rows) + " rows of " + std::to_string(width));
  }
  at::Tensor rows = at::empty({n_rows, width}, at::kFloat);
  for (int64_t r = 0; r < n_rows; ++r) {
    DequantizeRow(view->dtype, view->row(r), width, rows.data_ptr<float>() + r * width);
  }
  return rows;
}

Result<at::Tensor> LoadHeads(const GgufFile& file, const FeatureTarget& target, const std::string& name,
                             int64_t n_rows) {
  LS_ASSIGN(const bool paired, HasPairsToLoad(file));
  LS_ASSIGN(const at::Tensor rows, LoadRows(file, name, n_rows, target.n_embd));
  return paired ? SplitPairs(rows, target) : rows;
}

Result<at::Tensor> LoadHeadBias(const GgufFile& file, const FeatureTarget& target, const std::string& name,
                                int64_t n_rows) {
  LS_ASSIGN(const bool paired, HasPairsToLoad(file));
  LS_ASSIGN(const at::Tensor bias, LoadRows(file, name, 1, n_rows));
  return paired ? SplitPairs(bias.flatten(), target) : bias.flatten();
}

Result<int> CountLayers(const GgufFile& file) {
  LS_ASSIGN(const std::string architecture, file.GetString("general.architecture"));
  LS_ASSIGN(const uint64_t n_layer, file.GetUint(architecture + ".block_count"));
  return static_cast<int>(n_layer);
}

std::vector<TakenOver> AttentionOf(const Parameters& parameters, const std::string& to, int layer,
                                   double output_scale) {
  const auto name = [layer](TensorRole role) { return TensorName(role, layer); };
  std::vector<TakenOver> parts = {
      {to + ".q_proj.weight", name(TensorRole::kQuery), true},
      {to + ".k_proj.weight", name(TensorRole::kKey), true},
      {to + ".v_proj.weight", name(TensorRole::kValue)},
      {to + ".o_proj.weight", name(TensorRole::kAttentionOutput), false, output_scale}};
  if (parameters.Has(to + ".q_proj.bias")) {
    parts.push_back({to + ".q_proj.bias", name(TensorRole::kQueryBias), true});
    parts.push_back({to + ".k_proj.bias", name(TensorRole::kKeyBias), true});
    parts.push_back({to + ".v_proj.bias", name(TensorRole::kValueBias)});
  }
  return parts;
}

std::vector<TakenOver> MlpOf(const std::string& to, int layer, double output_scale) {
  return {{to + ".gate_proj.weight", TensorName(TensorRole::kGate, layer)},
          {to + ".up_proj.weight", TensorName(TensorRole::kUp, layer)},
          {to + ".down_proj.weight", TensorName(TensorRole::kDown, layer), false, output_scale}};
}

std::vector<TakenOver> BlockOf(const Parameters& parameters, const std::string& prefix, int layer) {
  std::vector<TakenOver> parts = AttentionOf(parameters, prefix + "self_attn", layer);
  for (const TakenOver& part : MlpOf(prefix + "mlp", layer)) parts.push_back(part);
  parts.push_back({prefix + "input_layernorm.weight", TensorName(TensorRole::kAttentionNorm, layer)});
  parts.push_back({prefix + "post_attention_layernorm.weight", TensorName(TensorRole::kMlpNorm, layer)});
  return parts;
}

Status TakeOver(const GgufFile& file, const FeatureTarget& target, const std::vector<TakenOver>& parts,
                const Parameters& parameters) {
  bool paired = false;
  if (std::ranges::any_of(parts, &TakenOver::rotated)) {
    LS_ASSIGN(paired, HasPairsToTakeOver(file));
  }
  const at::NoGradGuard no_grad;
  for (const TakenOver& part : parts) {
    if (part.from.ends_with(".bias") && file.FindTensor(part.from) == nullptr) continue;
    at::Tensor to = parameters.Find(part.to);
    const bool vector = to.dim() == 1;
    LS_ASSIGN(at::Tensor from, LoadRows(file, part.from, vector ? 1 : to.size(0), to.size(vector ? 0 : 1)));
    if (vector) from = from.flatten();
    if (part.rotated && paired) from = SplitPairs(from, target);
    to.copy_((from * part.scale).view_as(to));
  }
  return {};
}

at::Tensor JoinPairs(const at::Tensor& rows, const FeatureTarget& target) {
  return at::empty_like(rows).index_copy_(0, at::tensor(SplitOrder(rows.size(0), target)), rows);
}

}  // namespace longspec::train
