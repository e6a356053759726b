// SPDX-License-Identifier: Apache-2.0
#include "train/files.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "formats/atomic_file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "tensor/dequantize.h"

namespace longspec::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kStateKey[] = "longspec.trainer";
constexpr char kPositionsKey[] = "longspec.trained_positions";
constexpr char kVocabTensor[] = "draft.vocab";

// Of the output matrices that a draft takes over. In the target more layers and a norm follow; here the LM
// head does, and at their own size the first logits would be far too large.
constexpr double kOutputScale = 0.02;

size_t Z(int64_t n) { return static_cast<size_t>(n); }

// A matrix (n_rows, width), or a vector as one row.
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

// Rows of heads whose rotary pairs are neighbours to rows whose pairs lie half a head apart.
at::Tensor SplitPairs(const at::Tensor& rows, const FeatureTarget& t) {
  const auto half = static_cast<int64_t>(t.rope_frequencies.size());
  std::vector<int64_t> order;
  for (int64_t head = 0; head < rows.size(0); head += t.head_dim) {
    for (int64_t i = 0; i < half; ++i) order.push_back(head + 2 * i);
    for (int64_t i = 0; i < half; ++i) order.push_back(head + 2 * i + 1);
    for (int64_t i = 2 * half; i < t.head_dim; ++i) order.push_back(head + i);
  }
  return rows.index_select(0, at::tensor(order));
}

void AddTensor(const std::string& name, const at::Tensor& tensor, SafetensorsWriter* writer) {
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  const std::vector<int64_t> shape(values.sizes().rbegin(), values.sizes().rend());
  writer->AddTensor(name, DType::kF32, shape,
                    std::as_bytes(std::span(values.const_data_ptr<float>(), Z(values.numel()))));
}

// Values of any float type into `tensor`, whose shape they must have.
Status ReadTensor(const SafetensorsFile& file, const std::string& name, at::Tensor tensor) {
  const TensorView* view = file.FindTensor(name);
  if (view == nullptr) view = file.FindTensor("model." + name);
  if (view == nullptr) return Corrupt(file.path() + ": tensor " + name + " is missing");
  bool fits = view->n_dims == tensor.dim() && CanDequantize(view->dtype);
  for (int64_t d = 0; fits && d < tensor.dim(); ++d)
    fits = view->shape[d] == tensor.size(tensor.dim() - 1 - d);
  if (!fits) {
    std::string shape;
    for (const int64_t n : tensor.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(n);
    return Corrupt(file.path() + ": tensor " + name + " must have the shape (" + shape +
                   ") of this target's draft");
  }
  const at::Tensor values = at::empty(tensor.sizes(), at::kFloat);
  DequantizeRow(view->dtype, view->data, view->n_elements(), values.data_ptr<float>());
  const at::NoGradGuard no_grad;
  tensor.copy_(values);
  return {};
}

Json RopeScaling(const FeatureTarget& t) {
  if (t.rope_scaling == "none") return nullptr;
  return {{"rope_type", t.rope_scaling}, {"factor", t.rope_factor}};
}

std::string ConfigJson(const DraftShape& shape, int64_t trained_positions) {
  const FeatureTarget& t = shape.target;
  const Json json = {{"model_type", "llama"},
                     {"hidden_size", t.n_embd},
                     {"num_attention_heads", t.n_head},
                     {"num_key_value_heads", t.n_head_kv},
                     {"head_dim", t.head_dim},
                     {"intermediate_size", shape.n_ff},
                     {"vocab_size", t.n_vocab},
                     {"rms_norm_eps", t.rms_eps},
                     {"max_position_embeddings", t.n_ctx},
                     {"rope_theta", t.rope_base},
                     {"rope_scaling", RopeScaling(t)},
                     {"longspec_window", shape.window},
                     {"longspec_trained_positions", trained_positions},
                     {"longspec_target_fingerprint", t.fingerprint}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// A draft's folder, or its .safetensors file.
Result<std::shared_ptr<const SafetensorsFile>> OpenDraft(const std::string& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  return SafetensorsFile::Open(folder ? (fs::path(path) / "model.safetensors").string() : path);
}

}  // namespace

Result<FrozenParts> LoadFrozenParts(const std::string& gguf_path, const FeatureTarget& target) {
  LS_ASSIGN(const auto file, GgufFile::Open(gguf_path));
  if (TargetFingerprint(*file) != target.fingerprint) {
    return InvalidArgument(gguf_path + ": not the model the features were made with (" + target.name + ", " +
                           target.fingerprint + ")");
  }
  FrozenParts parts;
  LS_ASSIGN(parts.embedding, LoadRows(*file, "token_embd.weight", target.n_vocab, target.n_embd));
  parts.head = parts.embedding;
  if (file->FindTensor("output.weight") != nullptr) {
    LS_ASSIGN(parts.head, LoadRows(*file, "output.weight", target.n_vocab, target.n_embd));
  }
  return parts;
}

Status SaveCheckpoint(const TrainState& state, const DraftNet& net, const AdamW& optimiser,
                      const std::string& path) {
  SafetensorsWriter writer;
  writer.SetMetadata(kStateKey, Json{{"run", state.run},
                                     {"steps", state.steps},
                                     {"mean_loss", state.mean_loss},
                                     {"trained_positions", state.trained_positions}}
                                    .dump());
  for (const auto& [name, tensor] : net.tensors()) AddTensor(name, tensor, &writer);
  for (size_t i = 0; i < optimiser.parameters().size(); ++i) {
    AddTensor("adam.mean." + std::to_string(i), optimiser.means()[i], &writer);
    AddTensor("adam.square." + std::to_string(i), optimiser.squares()[i], &writer);
  }
  return writer.Write(path);
}

Status LoadCheckpoint(const std::string& path, TrainState* state, const DraftNet& net,
                      const AdamW& optimiser) {
  LS_ASSIGN(const auto file, SafetensorsFile::Open(path));
  const auto text = file->metadata().find(kStateKey);
  if (text == file->metadata().end()) return Corrupt(path + ": not a checkpoint of longspec-train");
  try {
    const Json json = Json::parse(text->second);
    const auto run = json.at("run").get<std::string>();
    if (run != state->run) {
      return InvalidArgument(
          path +
          ": a run with other options or features; give another folder to --output, or the "
          "options it was begun with: " +
          run);
    }
    state->steps = json.at("steps").get<int64_t>();
    state->mean_loss = json.at("mean_loss").get<double>();
    state->trained_positions = json.at("trained_positions").get<int64_t>();
  } catch (const Json::exception&) {
    return Corrupt(path + ": metadata \"" + kStateKey + "\" is malformed");
  }
  for (const auto& [name, tensor] : net.tensors()) LS_TRY(ReadTensor(*file, name, tensor));
  for (size_t i = 0; i < optimiser.parameters().size(); ++i) {
    LS_TRY(ReadTensor(*file, "adam.mean." + std::to_string(i), optimiser.means()[i]));
    LS_TRY(ReadTensor(*file, "adam.square." + std::to_string(i), optimiser.squares()[i]));
  }
  return {};
}

Status ExportDraft(const DraftNet& net, const DraftExport& about, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError(folder + ": " + error.message());
  const std::string config = ConfigJson(net.shape(), about.trained_positions);
  LS_ASSIGN(AtomicFile file, AtomicFile::Create((fs::path(folder) / "config.json").string()));
  LS_TRY(file.Write(std::as_bytes(std::span(config))));
  LS_TRY(file.Commit());
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  writer.SetMetadata(kPositionsKey, std::to_string(about.trained_positions));
  if (!about.vocab.empty()) {
    writer.AddTensor(kVocabTensor, DType::kI64, {static_cast<int64_t>(about.vocab.size())},
                     std::as_bytes(std::span(about.vocab)));
  }
  for (const auto& [name, tensor] : net.tensors()) AddTensor(name, tensor, &writer);
  return writer.Write((fs::path(folder) / "model.safetensors").string());
}

Result<std::vector<int64_t>> LoadDraftVocab(const std::string& path, int n_vocab) {
  LS_ASSIGN(const auto file, OpenDraft(path));
  const TensorView* tensor = file->FindTensor(kVocabTensor);
  std::vector<int64_t> vocab;
  if (tensor == nullptr) return vocab;
  if (tensor->dtype != DType::kI64)
    return Corrupt(file->path() + ": tensor " + kVocabTensor + " must be I64");
  vocab.resize(static_cast<size_t>(tensor->n_elements()));
  std::memcpy(vocab.data(), tensor->data, vocab.size() * sizeof(int64_t));
  const bool ascending = std::ranges::adjacent_find(vocab, std::greater_equal()) == vocab.end();
  if (vocab.empty() || !ascending || vocab.front() < 0 || vocab.back() >= n_vocab) {
    return Corrupt(file->path() + ": tensor " + kVocabTensor + " must hold ascending tokens below " +
                   std::to_string(n_vocab));
  }
  return vocab;
}

Result<int64_t> LoadDraft(const std::string& path, const DraftNet& net) {
  LS_ASSIGN(const auto file, OpenDraft(path));
  for (const auto& [name, tensor] : net.tensors()) LS_TRY(ReadTensor(*file, name, tensor));
  int64_t positions = 0;
  if (const auto text = file->metadata().find(kPositionsKey); text != file->metadata().end()) {
    const std::string& digits = text->second;
    std::from_chars(digits.data(), digits.data() + digits.size(), positions);
  }
  return positions;
}

Status InitFromTarget(const std::string& gguf_path, const DraftNet& net) {
  LS_ASSIGN(const auto file, GgufFile::Open(gguf_path));
  LS_ASSIGN(const std::string architecture, file->GetString("general.architecture"));
  const bool paired = architecture == "llama";  // its files have rotary pairs as neighbours
  if (!paired && architecture != "qwen2") {
    return Unsupported(gguf_path +
                       ": --init-from-target knows the layers of architectures llama and qwen2, not " +
                       architecture);
  }
  LS_ASSIGN(const uint64_t n_layer, file->GetUint(architecture + ".block_count"));
  const FeatureTarget& t = net.shape().target;
  const std::string first = "blk.0.", last = "blk." + std::to_string(n_layer - 1) + ".";
  const at::NoGradGuard no_grad;
  struct Part {
    const char* to;
    std::string from;
    bool rotated = false, small = false;
  };
  std::vector<Part> parts = {{"self_attn.q_proj.weight", first + "attn_q.weight", true},
                             {"self_attn.k_proj.weight", first + "attn_k.weight", true},
                             {"self_attn.v_proj.weight", first + "attn_v.weight"},
                             {"self_attn.o_proj.weight", first + "attn_output.weight", false, true},
                             {"input_layernorm.weight", first + "attn_norm.weight"},
                             {"cross_attn.q_proj.weight", last + "attn_q.weight", true},
                             {"cross_attn.o_proj.weight", last + "attn_output.weight", false, true},
                             {"post_self_attention_layernorm.weight", last + "attn_norm.weight"},
                             {"mlp.gate_proj.weight", first + "ffn_gate.weight"},
                             {"mlp.up_proj.weight", first + "ffn_up.weight"},
                             {"mlp.down_proj.weight", first + "ffn_down.weight", false, true},
                             {"post_cross_attention_layernorm.weight", first + "ffn_norm.weight"}};
  if (file->FindTensor(first + "attn_q.bias") != nullptr) {
    parts.push_back({"self_attn.q_proj.bias", first + "attn_q.bias", true});
    parts.push_back({"self_attn.k_proj.bias", first + "attn_k.bias", true});
    parts.push_back({"self_attn.v_proj.bias", first + "attn_v.bias"});
    parts.push_back({"cross_attn.q_proj.bias", last + "attn_q.bias", true});
  }
  for (const Part& part : parts) {
    at::Tensor to = net.Find(part.to);
    const bool vector = to.dim() == 1;
    LS_ASSIGN(at::Tensor from, LoadRows(*file, part.from, vector ? 1 : to.size(0), to.size(vector ? 0 : 1)));
    if (vector) from = from.flatten();
    if (part.rotated && paired) from = SplitPairs(from, t);
    if (part.small) from = from * kOutputScale;
    to.copy_(from.view_as(to));
  }
  return {};
}

}  // namespace longspec::train
