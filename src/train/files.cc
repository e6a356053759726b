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

#include "base/size.h"
#include "base/status_macros.h"
#include "formats/atomic_file.h"
#include "formats/draft_names.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "network/model_tensors.h"
#include "tensor/dequantize.h"
#include "train/target_weights.h"

namespace longspec::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kStateKey[] = "longspec.trainer";
constexpr char kPositionsKey[] = "longspec.trained_positions";  // of a safetensors file

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

Json ConfigJson(const Trainee& trainee, int64_t trained_positions) {
  const TraineeSetup& setup = trainee.setup();
  const FeatureTarget& t = setup.target;
  Json json = {{"model_type", "llama"},
               {"longspec_draft", setup.options.kind},
               {"hidden_size", t.n_embd},
               {"num_attention_heads", t.n_head},
               {"num_key_value_heads", t.n_head_kv},
               {"head_dim", t.head_dim},
               {"intermediate_size", setup.options.n_ff > 0 ? setup.options.n_ff : t.n_ff},
               {"vocab_size", t.n_vocab},
               {"rms_norm_eps", t.rms_eps},
               {"max_position_embeddings", t.n_ctx},
               {"rope_theta", t.rope_base},
               {"rope_scaling", RopeScaling(t)},
               {"longspec_rope_of_target", true},
               {kTrainedPositionsKey, trained_positions},
               {"longspec_target", t.fingerprint}};
  trainee.AddConfig(&json);
  return json;
}

// The tokens of a reduced head. `file`: a GgufFile or a SafetensorsFile.
template <typename File>
Result<std::vector<int64_t>> VocabOf(const File& file, int n_vocab) {
  const TensorView* tensor = file.FindTensor(kDraftVocabTensor);
  const bool offsets = tensor == nullptr && file.FindTensor("d2t") != nullptr;  // EAGLE-3's
  if (offsets) tensor = file.FindTensor("d2t");
  std::vector<int64_t> vocab;
  if (tensor == nullptr) return vocab;
  const std::string name = file.path() + ": tensor " + std::string(tensor->name);
  if (tensor->dtype == DType::kI32) {
    std::vector<int32_t> narrow(Z(tensor->n_elements()));
    std::memcpy(narrow.data(), tensor->data, narrow.size() * sizeof(int32_t));
    vocab.assign(narrow.begin(), narrow.end());
  } else if (tensor->dtype == DType::kI64) {
    vocab.resize(Z(tensor->n_elements()));
    std::memcpy(vocab.data(), tensor->data, vocab.size() * sizeof(int64_t));
  } else {
    return Corrupt(name + " must be I32 or I64");
  }
  const auto is_token = [&](int64_t token) { return token >= 0 && token < n_vocab; };
  // Offsets are no larger than tokens, so that none wraps around.
  if (offsets && std::ranges::all_of(vocab, is_token)) {
    for (size_t i = 0; i < vocab.size(); ++i) vocab[i] += static_cast<int64_t>(i);
  }
  if (!offsets) std::ranges::sort(vocab);  // a reduced head's rows are the target's, in any order
  const bool ascending = std::ranges::adjacent_find(vocab, std::greater_equal()) == vocab.end();
  if (vocab.empty() || !ascending || !is_token(vocab.front()) || !is_token(vocab.back())) {
    return Corrupt(name + " must hold tokens below " + std::to_string(n_vocab) + ", each once");
  }
  return vocab;
}

// A draft's folder, or its .safetensors file.
Result<std::shared_ptr<const SafetensorsFile>> OpenDraft(const std::string& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  return SafetensorsFile::Open(folder ? (fs::path(path) / "model.safetensors").string() : path);
}

}  // namespace

Result<FrozenParts> LoadFrozenParts(const GgufFile& file, const FeatureTarget& target) {
  if (TargetFingerprint(file) != target.fingerprint) {
    return InvalidArgument(file.path() + ": not the model the features were made with (" + target.name +
                           ", " + target.fingerprint + ")");
  }
  FrozenParts parts;
  LS_ASSIGN(parts.embedding,
            LoadRows(file, TensorName(TensorRole::kEmbedding), target.n_vocab, target.n_embd));
  parts.head = parts.embedding;
  const std::string head = TensorName(TensorRole::kHead);
  if (file.FindTensor(head) != nullptr) {
    LS_ASSIGN(parts.head, LoadRows(file, head, target.n_vocab, target.n_embd));
  }
  return parts;
}

Status SaveCheckpoint(const TrainState& state, const Parameters& parameters, const Optimiser& optimiser,
                      const std::string& path) {
  SafetensorsWriter writer;
  writer.SetMetadata(kStateKey, Json{{"run", state.run},
                                     {"steps", state.steps},
                                     {"total", state.total},
                                     {"mean_loss", state.mean_loss},
                                     {"trained_positions", state.trained_positions}}
                                    .dump());
  for (const auto& [name, tensor] : parameters.tensors()) AddTensor(name, tensor, &writer);
  for (const auto& [name, tensor] : optimiser.state()) AddTensor(name, tensor, &writer);
  return writer.Write(path);
}

Status LoadCheckpoint(const std::string& path, TrainState* state, const Parameters& parameters,
                      const Optimiser& optimiser) {
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
    state->total = json.at("total").get<int64_t>();
    state->mean_loss = json.at("mean_loss").get<double>();
    state->trained_positions = json.at("trained_positions").get<int64_t>();
  } catch (const Json::exception&) {
    return Corrupt(path + ": metadata \"" + kStateKey + "\" is malformed");
  }
  for (const auto& [name, tensor] : parameters.tensors()) LS_TRY(ReadTensor(*file, name, tensor));
  for (const auto& [name, tensor] : optimiser.state()) LS_TRY(ReadTensor(*file, name, tensor));
  return {};
}

Status ExportDraft(const Trainee& trainee, int64_t trained_positions, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError(folder + ": " + error.message());
  const std::string config =
      ConfigJson(trainee, trained_positions).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  LS_ASSIGN(AtomicFile file, AtomicFile::Create((fs::path(folder) / "config.json").string()));
  LS_TRY(file.Write(std::as_bytes(std::span(config))));
  LS_TRY(file.Commit());
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  writer.SetMetadata(kPositionsKey, std::to_string(trained_positions));
  trainee.AddTensors(&writer);
  LS_TRY(writer.Write((fs::path(folder) / "model.safetensors").string()));
  return trainee.ExportMore(folder, trained_positions);
}

Result<std::vector<int64_t>> LoadDraftVocab(const std::string& path, int n_vocab) {
  if (BeginsAsGguf(path)) {
    LS_ASSIGN(const auto file, GgufFile::Open(path));
    return VocabOf(*file, n_vocab);
  }
  LS_ASSIGN(const auto file, OpenDraft(path));
  return VocabOf(*file, n_vocab);
}

Result<int64_t> LoadDraft(const std::string& path, Trainee& trainee) {
  if (BeginsAsGguf(path)) {
    LS_ASSIGN(const auto file, GgufFile::Open(path));
    return trainee.InitFromGguf(*file);
  }
  LS_ASSIGN(const auto file, OpenDraft(path));
  for (const auto& [name, tensor] : trainee.parameters().tensors()) LS_TRY(ReadTensor(*file, name, tensor));
  int64_t positions = 0;
  if (const auto text = file->metadata().find(kPositionsKey); text != file->metadata().end()) {
    const std::string& digits = text->second;
    std::from_chars(digits.data(), digits.data() + digits.size(), positions);
  }
  return positions;
}

void AddTensor(const std::string& name, const at::Tensor& tensor, SafetensorsWriter* writer) {
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  const std::vector<int64_t> shape(values.sizes().rbegin(), values.sizes().rend());
  writer->AddTensor(name, DType::kF32, shape,
                    std::as_bytes(std::span(values.const_data_ptr<float>(), Z(values.numel()))));
}

}  // namespace longspec::train
