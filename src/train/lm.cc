// SPDX-License-Identifier: Apache-2.0
//
// A small language model of the target's own tokenizer: some of the target's layers, trained to stand behind
// each other, between its embedding and its head, which stay as they are. It is exported as the folder of a
// Llama and as a GGUF file that any program can run; with a reduced head without both, for its target alone
// (draft_model/lm_file.h). Or some layers of a smaller model of the same vocabulary (sibling.h), with that
// one's embedding and head as far as the draft's own tokens go: for this target alone, too.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "base/size.h"
#include "base/status_macros.h"
#include "formats/draft_names.h"
#include "formats/gguf_writer.h"
#include "network/model_tensors.h"
#include "tensor/half.h"
#include "train/files.h"
#include "train/layers.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"

namespace longspec::train {
namespace {

std::string Prefix(size_t layer) { return "model.layers." + std::to_string(layer) + "."; }

std::vector<uint16_t> Halves(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kHalf).contiguous();
  const auto* words = static_cast<const uint16_t*>(values.const_data_ptr());
  return {words, words + values.numel()};
}

void AddHalves(const std::string& name, const at::Tensor& tensor, SafetensorsWriter* writer) {
  const std::vector<uint16_t> halves = Halves(tensor);
  writer->AddTensor(name, DType::kF16, {tensor.sizes().rbegin(), tensor.sizes().rend()},
                    std::as_bytes(std::span(halves)));
}

// A matrix in f16, a vector in f32.
void AddToGguf(const std::string& name, const at::Tensor& tensor, GgufWriter* writer) {
  const std::vector<int64_t> shape(tensor.sizes().rbegin(), tensor.sizes().rend());
  if (tensor.dim() > 1) {
    const std::vector<uint16_t> halves = Halves(tensor);
    writer->AddTensor(name, DType::kF16, shape, std::as_bytes(std::span(halves)));
    return;
  }
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  writer->AddTensor(name, DType::kF32, shape,
                    std::as_bytes(std::span(values.const_data_ptr<float>(), Z(values.numel()))));
}

// As it is in the target's file; nothing if that has none.
void CopyTensor(const GgufFile& file, const std::string& name, GgufWriter* writer) {
  const TensorView* view = file.FindTensor(name);
  if (view == nullptr) return;
  const std::vector<int64_t> shape(view->shape, view->shape + view->n_dims);
  const size_t bytes = RowBytes(view->dtype, view->shape[0]) * Z(view->n_rows());
  writer->AddTensor(name, view->dtype, shape, {view->data, bytes});
}

class LmTrainee : public Trainee {
 public:
  explicit LmTrainee(TraineeSetup setup) : Trainee(std::move(setup)) {
    const bool bias = origin().FindTensor(TensorName(TensorRole::kQueryBias, 0)) != nullptr;
    for (size_t i = 0; i < setup_.options.layers.size(); ++i) {
      AddLlamaBlock(&parameters_, shape(), Prefix(i), setup_.sibling != nullptr ? shape().n_ff : n_ff(),
                    bias);
    }
    parameters_.Vector("model.norm.weight", shape().n_embd, 1.0);
  }

  PassLoss Loss(const PlacedBatch& batch, const PassDraw&) const override {
    const at::Tensor head = setup_.sibling == nullptr ? batch.loss_head.weight
                                                      : batch.loss_head.RowsOf(setup_.sibling->loss_head);
    return CausalLoss(batch, Forward(batch), head, shape());
  }

  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override {
    return std::vector<at::Tensor>(Z(n_lags), Forward(batch));
  }
  at::Tensor Head(int lag) const override {
    return setup_.sibling != nullptr ? setup_.sibling->head : Trainee::Head(lag);
  }

  std::string Describe() const override {
    std::string text = "--layers ";
    for (const int layer : setup_.options.layers) text += std::to_string(layer) + ",";
    text.pop_back();
    return text + (setup_.sibling != nullptr ? " --sibling " + shape().fingerprint : "");
  }

  bool BeginsWithTarget() const override { return true; }
  Status InitFromTarget() override {
    return TakeOver(origin(), shape(), PartsOf(setup_.options.layers), parameters_);
  }

  Result<int64_t> InitFromGguf(const GgufFile& file) override {
    LS_ASSIGN(const std::string architecture, file.GetString("general.architecture"));
    if (architecture != Architecture()) {
      return InvalidArgument(file.path() + ": has architecture \"" + architecture +
                             "\", a draft of --kind lm has that of the model that it is cut out of, " +
                             Architecture());
    }
    LS_ASSIGN(const int n_layer, CountLayers(file));
    if (n_layer != static_cast<int>(setup_.options.layers.size())) {
      return InvalidArgument(file.path() + ": has " + std::to_string(n_layer) + " layers, --layers names " +
                             std::to_string(setup_.options.layers.size()));
    }
    if (IsCut(file) != (setup_.sibling != nullptr)) {
      return InvalidArgument(file.path() +
                             ": is not of the model that this draft is cut out of; see --sibling");
    }
    LS_ASSIGN(const std::string of, file.GetStringOr(kLmTargetKey, setup_.target.fingerprint));
    if (of != setup_.target.fingerprint) {
      return InvalidArgument(file.path() + ": a draft of the model " + of + ", the features are of " +
                             setup_.target.fingerprint);
    }
    LS_TRY(TakeOver(file, shape(), PartsOf(OwnLayers()), parameters_));
    LS_ASSIGN(const uint64_t positions, file.GetUint(architecture + ".context_length"));
    return static_cast<int64_t>(positions);
  }

  void AddConfig(nlohmann::json* config) const override {
    const bool qwen = Architecture() == "qwen2";
    (*config)["architectures"] = {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"};
    (*config)["model_type"] = Architecture();
    (*config)["hidden_act"] = "silu";
    (*config)["num_hidden_layers"] = setup_.options.layers.size();
    (*config)["tie_word_embeddings"] = Tied();
    (*config)["torch_dtype"] = "float32";
    if (setup_.sibling != nullptr) {
      (*config)["hidden_size"] = shape().n_embd;
      (*config)["num_attention_heads"] = shape().n_head;
      (*config)["num_key_value_heads"] = shape().n_head_kv;
      (*config)["head_dim"] = shape().head_dim;
      (*config)["intermediate_size"] = shape().n_ff;
      (*config)["rope_theta"] = shape().rope_base;
      (*config)["rms_norm_eps"] = shape().rms_eps;
    }
    for (const auto& [key, name] : {std::pair("bos", "bos_token_id"), std::pair("eos", "eos_token_id")}) {
      const auto id = setup_.model->GetUint(std::string("tokenizer.ggml.") + key + "_token_id");
      if (id.ok()) (*config)[name] = *id;
    }
  }

  void AddTensors(SafetensorsWriter* writer) const override {
    if (OfTarget()) return Trainee::AddTensors(writer);
    AddHalves("model.embed_tokens.weight", setup_.frozen.embedding, writer);
    for (const auto& [name, tensor] : parameters_.tensors()) AddTensor(name, tensor, writer);
    if (!Tied()) AddHalves("lm_head.weight", setup_.frozen.whole_head, writer);
  }

  Status ExportMore(const std::string& folder, int64_t trained_positions) const override {
    GgufWriter writer;
    const std::string own = Architecture() + ".";
    for (const auto& [key, value] : origin().metadata()) {
      const bool is_own = key.starts_with(own) && !key.starts_with(own + "rope.scal");
      if ((key.starts_with("tokenizer.") && !OfTarget()) || is_own) writer.SetValue(key, value);
    }
    writer.SetString("general.architecture", Architecture());
    writer.SetString("general.name", setup_.target.name + " draft of " +
                                         std::to_string(setup_.options.layers.size()) + " layers");
    writer.SetUint32(own + "block_count", static_cast<uint32_t>(setup_.options.layers.size()));
    // What it learned, not what its target did: in longer texts it is to begin anew
    // (draft_model/trained_range.h).
    writer.SetUint32(own + "context_length", static_cast<uint32_t>(trained_positions));
    AddRotation(own, &writer);
    if (OfTarget()) {
      writer.SetString(kLmTargetKey, setup_.target.fingerprint);
      const std::vector<int32_t> vocab(setup_.vocab.begin(), setup_.vocab.end());
      writer.AddTensor(kDraftVocabTensor, DType::kI32, {std::ssize(vocab)}, std::as_bytes(std::span(vocab)));
    } else {
      for (const TensorRole role : {TensorRole::kEmbedding, TensorRole::kHead}) {
        CopyTensor(*setup_.model, TensorName(role), &writer);
      }
    }
    AddOfSibling(&writer);
    for (const TakenOver& part : PartsOf(OwnLayers())) {
      at::Tensor tensor = parameters_.Find(part.to).detach().to(at::kCPU);
      if (part.rotated && Architecture() == "llama") tensor = JoinPairs(tensor, shape());
      AddToGguf(part.from, tensor, &writer);
    }
    return writer.Write((std::filesystem::path(folder) / "model.gguf").string());
  }

 private:
  // What it is cut out of, and that one's sizes.
  const GgufFile& origin() const { return setup_.sibling != nullptr ? *setup_.sibling->file : *setup_.model; }
  const FeatureTarget& shape() const {
    return setup_.sibling != nullptr ? setup_.sibling->shape : setup_.target;
  }

  // Rows of a sibling's embedding and head, and which of them stand for the target's tokens.
  void AddOfSibling(GgufWriter* writer) const {
    if (setup_.sibling == nullptr) return;
    const Sibling& sibling = *setup_.sibling;
    AddToGguf(TensorName(TensorRole::kEmbedding), sibling.embedding, writer);
    if (!sibling.head.is_same(sibling.embedding)) AddToGguf(kDraftHeadTensor, sibling.head, writer);
    const at::Tensor rows = sibling.stand_ins.to(at::kCPU, at::kInt).contiguous();
    writer->AddTensor(kDraftStandInTensor, DType::kI32, {rows.numel()},
                      std::as_bytes(std::span(rows.const_data_ptr<int32_t>(), Z(rows.numel()))));
  }

  // What is trained, and where it is in a GGUF file in which these layers are the draft's.
  std::vector<TakenOver> PartsOf(const std::vector<int>& layers) const {
    std::vector<TakenOver> parts = {{"model.norm.weight", TensorName(TensorRole::kOutputNorm)}};
    for (size_t i = 0; i < layers.size(); ++i) {
      for (const TakenOver& part : BlockOf(parameters_, Prefix(i), layers[i])) parts.push_back(part);
    }
    return parts;
  }
  // Of a file of its own.
  std::vector<int> OwnLayers() const {
    std::vector<int> layers(setup_.options.layers.size());
    std::iota(layers.begin(), layers.end(), 0);
    return layers;
  }

  // The scaling it was trained with may be another than its target's file has: it is written as what it makes
  // of each frequency, and of the magnitude.
  void AddRotation(const std::string& own, GgufWriter* writer) const {
    const FeatureTarget& target = shape();
    const std::vector<double>& scaled = target.rope_frequencies;
    std::vector<float> factors;
    for (size_t i = 0; i < scaled.size(); ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(scaled.size());
      factors.push_back(static_cast<float>(std::pow(target.rope_base, -exponent) / scaled[i]));
    }
    if (std::ranges::any_of(factors, [](float factor) { return factor != 1.0F; })) {
      writer->AddTensor("rope_freqs.weight", DType::kF32, {std::ssize(factors)},
                        std::as_bytes(std::span(factors)));
    }
    if (target.rope_magnitude != 1.0) {
      writer->SetFloat32(own + "rope.scaling.attn_factor", static_cast<float>(target.rope_magnitude));
    }
  }

  std::string Architecture() const { return *origin().GetString("general.architecture"); }
  // Whether it is of use to its target alone, with whose embedding and head it is run.
  bool OfTarget() const { return !setup_.vocab.empty(); }
  bool Tied() const { return setup_.frozen.whole_head.is_same(setup_.frozen.embedding); }

  at::Tensor Forward(const PlacedBatch& batch) const {
    const Rotation rotation = MakeRotation(shape(), batch.positions, shape().rope_magnitude);
    at::Tensor x = batch.embedded;
    if (const auto& sibling = setup_.sibling; sibling != nullptr)
      x = sibling->embedding.index_select(0, sibling->stand_ins.index_select(0, batch.tokens));
    for (size_t i = 0; i < setup_.options.layers.size(); ++i) {
      x = LlamaBlock{parameters_, shape(), Prefix(i)}.Forward(x, rotation, batch.ends);
    }
    return RmsNorm(x, parameters_.Find("model.norm.weight"), shape().rms_eps);
  }
};

Status ResolveLm(TraineeOptions* o, const FeatureTarget&, int n_layer) {
  if (o->layers.empty()) {
    // The first and the last, and two between them.
    for (int i = 0; i < 4; ++i) o->layers.push_back(i * (n_layer - 1) / 3);
    o->layers.erase(std::unique(o->layers.begin(), o->layers.end()), o->layers.end());
  }
  if (std::ranges::all_of(o->layers, [&](int layer) { return layer >= 0 && layer < n_layer; })) return {};
  return InvalidArgument("--layers: must be layers of the " +
                         std::string(o->sibling.empty() ? "target" : "sibling") + ", 0 to " +
                         std::to_string(n_layer - 1));
}

}  // namespace

const TraineeKind& LmKind() {
  static const TraineeKind kind = {
      .name = "lm",
      .what = "a language model of some of the target's layers; also written as model.gguf",
      .reads = {"--layers", "--sibling"},
      .resolve = ResolveLm,
      .needs = [](const TraineeOptions&) { return ShardNeeds{}; },
      .make = [](TraineeSetup setup) -> std::unique_ptr<Trainee> {
        return std::make_unique<LmTrainee>(std::move(setup));
      },
      .positions = Positions::kPlain};  // it reads the end of a text as a text of its own
  return kind;
}

}  // namespace longspec::train
