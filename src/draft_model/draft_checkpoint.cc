// SPDX-License-Identifier: Apache-2.0
#include "draft_model/draft_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <set>
#include <span>

#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "draft_model/llama_cpp_eagle3.h"
#include "formats/atomic_file.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace longspec {

namespace {

namespace fs = std::filesystem;

constexpr char kKindKey[] = "general.architecture";
constexpr size_t kMaxConfigBytes = 1 << 20;

Status SetConfig(std::string text, const std::string& path, DraftCheckpoint* checkpoint) {
  checkpoint->config_json = std::move(text);
  LS_ASSIGN(const ConfigKeys keys, ConfigKeys::Parse(checkpoint->config_json, path));
  LS_ASSIGN(checkpoint->keys, keys.With("transformer_layer_config"));  // as speculators nests a draft's layer
  LS_ASSIGN(checkpoint->config, ReadDraftConfig(checkpoint->keys));
  return {};
}

Status ReadConfig(const std::string& path, DraftCheckpoint* checkpoint) {
  LS_ASSIGN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxConfigBytes) return Corrupt(path + ": too large for a configuration");
  return SetConfig({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path,
                   checkpoint);
}

void AddTensors(const std::vector<TensorView>& tensors, DraftCheckpoint* checkpoint) {
  constexpr std::string_view kPrefix = "model.";
  for (TensorView tensor : tensors) {
    if (tensor.name.starts_with(kPrefix)) tensor.name.erase(0, kPrefix.size());
    checkpoint->tensors.push_back(std::move(tensor));
  }
}

Status AddSafetensors(const std::string& path, DraftCheckpoint* checkpoint) {
  LS_ASSIGN(const auto file, SafetensorsFile::Open(path));
  AddTensors(file->tensors(), checkpoint);
  checkpoint->owners.push_back(file);
  return {};
}

// What torch.save writes runs code when it is read.
Status RefusePickle(const std::string& path) {
  return Unsupported(path + ": a PyTorch pickle, which is not read; convert it to model.safetensors " +
                     "(safetensors.torch.save_file of its tensors)");
}

bool IsPickle(const fs::path& path) {
  return path.extension() == ".bin" || path.extension() == ".pt" || path.extension() == ".pth";
}

Status ReadFolder(const std::string& folder, DraftCheckpoint* checkpoint) {
  std::set<std::string> files, pickles;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.insert(it->path().string());
    if (IsPickle(it->path())) pickles.insert(it->path().string());
  }
  if (error) return IoError(folder + ": " + error.message());
  if (files.empty() && !pickles.empty()) return RefusePickle(*pickles.begin());
  if (files.empty()) return NotFound(folder + ": no *.safetensors file in this folder");
  LS_TRY(ReadConfig((fs::path(folder) / "config.json").string(), checkpoint));
  for (const std::string& file : files) LS_TRY(AddSafetensors(file, checkpoint));
  return {};
}

// The folder's config.json counts for the file beside it; alone, a file has its shapes to go by.
Status ReadSafetensors(const std::string& path, DraftCheckpoint* checkpoint) {
  std::error_code error;
  if (IsPickle(path) && fs::exists(path, error)) return RefusePickle(path);
  LS_TRY(AddSafetensors(path, checkpoint));
  const fs::path config = fs::path(path).parent_path() / "config.json";
  return fs::exists(config, error) ? ReadConfig(config.string(), checkpoint) : Status();
}

Status ReadGguf(std::shared_ptr<const GgufFile> file, DraftCheckpoint* checkpoint) {
  const std::string& path = checkpoint->path;
  LS_ASSIGN(const std::string architecture, file->GetString(kKindKey));
  checkpoint->kind = FindDraftKind(architecture);
  if (checkpoint->kind == nullptr) {
    return Unsupported(path + ": architecture \"" + architecture +
                       "\" is no kind of draft model; known are " + DraftKindNames());
  }
  if (IsLlamaCppEagle3(*file)) {
    LS_ASSIGN(std::string translated, LlamaCppEagle3Config(*file));
    LS_TRY(SetConfig(std::move(translated), path, checkpoint));
    return AddLlamaCppEagle3Tensors(std::move(file), checkpoint);
  }
  LS_ASSIGN(std::string config, file->GetStringOr(kDraftConfigKey, ""));
  if (!config.empty()) LS_TRY(SetConfig(std::move(config), path + ": " + kDraftConfigKey, checkpoint));
  AddTensors(file->tensors(), checkpoint);
  checkpoint->owners.push_back(std::move(file));
  return {};
}

// A GGUF file has said it; config.json may; otherwise its tensors do.
Status TellKind(DraftCheckpoint* checkpoint) {
  if (checkpoint->kind != nullptr) return {};
  const std::string& said = checkpoint->config.kind;
  if (!said.empty()) {
    checkpoint->kind = FindDraftKind(said);
    if (checkpoint->kind != nullptr) return {};
    return Unsupported(checkpoint->path + ": \"longspec_draft\": \"" + said +
                       "\" is no kind of draft model; known are " + DraftKindNames());
  }
  for (const DraftKind* kind : DraftKinds()) {
    if (!kind->recognise(*checkpoint)) continue;
    checkpoint->kind = kind;
    return {};
  }
  return Unsupported(checkpoint->path + ": holds the tensors of no draft model; known kinds are " +
                     DraftKindNames());
}

void RenameTensors(DraftCheckpoint* checkpoint) {
  const DraftKind& kind = *checkpoint->kind;
  if (kind.rename == nullptr) return;
  for (TensorView& tensor : checkpoint->tensors) tensor.name = kind.rename(tensor.name);
}

Status CheckType(const std::string& path, const TensorView& tensor, DraftHolds holds) {
  const std::string name = path + ": tensor " + tensor.name;
  switch (holds) {
    case DraftHolds::kTokens:
      if (tensor.dtype == DType::kI32 || tensor.dtype == DType::kI64) return {};
      return Corrupt(name + " must hold I32 or I64 tokens");
    case DraftHolds::kMask:
      return tensor.dtype == DType::kI8 ? Status() : Corrupt(name + " must hold truth values, BOOL or I8");
    case DraftHolds::kWeights:
      break;
  }
  if (CanDequantize(tensor.dtype)) return {};
  return Unsupported(name + " has type " + std::string(Info(tensor.dtype).name) +
                     ", which weights cannot have");
}

Status CheckNames(const DraftCheckpoint& checkpoint) {
  const std::string kind(checkpoint.kind->name);
  std::vector<DraftPart> known = checkpoint.kind->tensors(checkpoint);
  if (checkpoint.kind->head_of_target) {
    known.push_back({.tensor = kDraftVocabTensor, .required = false, .holds = DraftHolds::kTokens});
  }
  std::set<std::string_view> seen;
  for (const TensorView& tensor : checkpoint.tensors) {
    if (!seen.insert(tensor.name).second) {
      return Corrupt(checkpoint.path + ": tensor " + tensor.name + " appears twice");
    }
    if (tensor.n_dims < 1 || tensor.n_dims > 2) {
      return Corrupt(checkpoint.path + ": tensor " + tensor.name + " is neither a vector nor a matrix");
    }
    const auto it = std::ranges::find(known, tensor.name, &DraftPart::tensor);
    if (it == known.end()) {
      return Corrupt(checkpoint.path + ": tensor " + tensor.name + " is none that a draft model of kind " +
                     kind + " has");
    }
    LS_TRY(CheckType(checkpoint.path, tensor, it->holds));
  }
  for (const DraftPart& part : known) {
    if (part.required && !seen.contains(part.tensor)) {
      return Corrupt(checkpoint.path + ": tensor " + part.tensor +
                     " is missing, which every draft model of kind " + kind + " has");
    }
  }
  return {};
}

Status Check(DraftCheckpoint* checkpoint) {
  LS_TRY(TellKind(checkpoint));
  RenameTensors(checkpoint);
  return CheckNames(*checkpoint);
}

Status Read(const std::string& path, DraftCheckpoint* checkpoint) {
  std::error_code error;
  if (fs::is_directory(path, error)) return ReadFolder(path, checkpoint);
  LS_ASSIGN(auto file, GgufFile::OpenIfGguf(path));
  return file != nullptr ? ReadGguf(std::move(file), checkpoint) : ReadSafetensors(path, checkpoint);
}

// Calls add(name, type, shape, bytes) for each tensor. Vectors and the vocabulary keep their types.
template <typename Add>
Status Export(const DraftCheckpoint& checkpoint, std::optional<DType> type, Add&& add) {
  for (const TensorView& tensor : checkpoint.tensors) {
    const std::vector<int64_t> shape(tensor.shape, tensor.shape + tensor.n_dims);
    const DType to =
        tensor.n_rows() > 1 && CanDequantize(tensor.dtype) ? type.value_or(tensor.dtype) : tensor.dtype;
    if (to == tensor.dtype) {
      add(tensor.name, to, shape, std::span(tensor.data, tensor.n_bytes));
      continue;
    }
    LS_TRY(CheckRowsFit(checkpoint.path, tensor, to));
    add(tensor.name, to, shape, std::span<const std::byte>(QuantizeTensor(tensor, to)));
  }
  return {};
}

Status WriteText(const std::string& text, const std::string& path) {
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  LS_TRY(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

}  // namespace

bool DraftCheckpoint::HasPrefix(std::string_view prefix) const {
  return std::ranges::any_of(tensors,
                             [&](const TensorView& tensor) { return tensor.name.starts_with(prefix); });
}

const TensorView* DraftCheckpoint::Find(std::string_view name) const {
  const auto it = std::ranges::find(tensors, name, &TensorView::name);
  return it == tensors.end() ? nullptr : &*it;
}

Result<DraftCheckpoint> OpenDraftCheckpoint(const std::string& path) try {
  DraftCheckpoint checkpoint;
  checkpoint.path = path;
  LS_TRY(Read(path, &checkpoint));
  LS_TRY(Check(&checkpoint));
  return checkpoint;
} catch (const std::bad_alloc&) {
  return ResourceExhausted(path + ": not enough memory for its header");
}

Result<DraftCheckpoint> DraftCheckpointOf(std::shared_ptr<const GgufFile> file) try {
  DraftCheckpoint checkpoint;
  checkpoint.path = file->path();
  LS_TRY(ReadGguf(file, &checkpoint));
  LS_TRY(Check(&checkpoint));
  return checkpoint;
} catch (const std::bad_alloc&) {
  return ResourceExhausted(file->path() + ": not enough memory for its header");
}

Status CheckRowsFit(const std::string& path, const TensorView& tensor, DType type) {
  if (tensor.shape[0] % Info(type).block_elements == 0) return {};
  return InvalidArgument(path + ": tensor " + tensor.name + " has rows of " +
                         std::to_string(tensor.shape[0]) + ", no multiple of " +
                         std::to_string(Info(type).block_elements) + ", the block size of " +
                         std::string(Info(type).name));
}

Status WriteDraftGguf(const DraftCheckpoint& checkpoint, std::optional<DType> type, const std::string& path) {
  GgufWriter writer;
  writer.SetString(kKindKey, std::string(checkpoint.kind->name));
  if (!checkpoint.config_json.empty()) writer.SetString(kDraftConfigKey, checkpoint.config_json);
  LS_TRY(Export(checkpoint, type,
                [&](const std::string& name, DType to, std::vector<int64_t> shape, auto bytes) {
                  writer.AddTensor(name, to, std::move(shape), bytes);
                }));
  return writer.Write(path);
}

Status WriteDraftFolder(const DraftCheckpoint& checkpoint, std::optional<DType> type,
                        const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError(folder + ": cannot be made: " + error.message());
  const bool blocks = std::ranges::any_of(checkpoint.tensors,
                                          [](const TensorView& t) { return !IsSafetensorsType(t.dtype); });
  if (!type && blocks) type = DType::kF32;
  if (type && !IsSafetensorsType(*type)) {
    return InvalidArgument(folder + ": a safetensors file cannot hold " + std::string(Info(*type).name) +
                           "; choose f32, f16 or bf16, or write a .gguf file");
  }
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  LS_TRY(Export(checkpoint, type,
                [&](const std::string& name, DType to, std::vector<int64_t> shape, auto bytes) {
                  writer.AddTensor(name, to, std::move(shape), bytes);
                }));
  LS_TRY(writer.Write((fs::path(folder) / "model.safetensors").string()));
  if (checkpoint.config_json.empty()) return {};
  return WriteText(checkpoint.config_json, (fs::path(folder) / "config.json").string());
}

// config.json of a draft model: the target's configuration, as Hugging Face writes it.
namespace {

constexpr double kMostPositions = 1 << 30;

// "rope_theta" and "rope_scaling" until transformers 5, "rope_parameters" since.
Status ReadRope(const ConfigKeys& keys, DraftConfig* config) {
  LS_ASSIGN(config->rope_theta, keys.Positive("rope_theta"));
  LS_ASSIGN(ConfigKeys scaling, keys.Object("rope_scaling"));
  LS_ASSIGN(const ConfigKeys parameters, keys.Object("rope_parameters"));
  if (config->rope_theta == 0.0) {
    LS_ASSIGN(config->rope_theta, parameters.Positive("rope_theta"));
  }
  if (config->rope_theta == 0.0) config->rope_theta = 10000.0;
  if (scaling.empty()) scaling = parameters;
  LS_ASSIGN(std::string type, scaling.Text("rope_type"));
  if (type.empty()) {
    LS_ASSIGN(type, scaling.Text("type"));
  }
  config->rope_scaling = type.empty() || type == "default" ? "none" : type;
  LS_ASSIGN(config->rope_factor, scaling.Positive("factor"));
  LS_ASSIGN(config->rope_original_positions, scaling.Size("original_max_position_embeddings"));
  LS_ASSIGN(config->rope_beta_fast, scaling.Positive("beta_fast"));
  LS_ASSIGN(config->rope_beta_slow, scaling.Positive("beta_slow"));
  return {};
}

// Published configurations name the positions a model has before linear scaling stretches them (Vicuna-16k:
// 4096 and a factor of 4).
Status ReadTrainedPositions(const ConfigKeys& keys, DraftConfig* config) {
  LS_ASSIGN(config->trained_positions, keys.Size(kTrainedPositionsKey));
  if (config->trained_positions != 0) return {};
  LS_ASSIGN(const int unscaled, keys.Size("max_position_embeddings"));
  const bool is_scaled = config->rope_scaling == "linear" && config->rope_factor > 0.0;
  const double scaled = unscaled * (is_scaled ? config->rope_factor : 1.0);
  config->trained_positions = static_cast<int>(std::min(scaled, kMostPositions));
  return {};
}

}  // namespace

Result<DraftConfig> ReadDraftConfig(const ConfigKeys& keys) {
  DraftConfig config;
  LS_ASSIGN(config.kind, keys.Text("longspec_draft"));
  LS_ASSIGN(config.architectures, keys.Texts("architectures"));
  LS_ASSIGN(config.hidden_size, keys.Size("hidden_size"));
  LS_ASSIGN(config.n_head, keys.Size("num_attention_heads"));
  LS_ASSIGN(config.n_kv_head, keys.Size("num_key_value_heads"));
  LS_ASSIGN(config.head_dim, keys.Size("head_dim"));
  LS_ASSIGN(config.n_ff, keys.Size("intermediate_size"));
  LS_ASSIGN(config.n_vocab, keys.Size("vocab_size"));
  LS_ASSIGN(config.rms_eps, keys.Positive("rms_norm_eps"));
  if (config.n_kv_head == 0) config.n_kv_head = config.n_head;
  if (config.head_dim == 0 && config.n_head > 0) config.head_dim = config.hidden_size / config.n_head;
  LS_TRY(ReadRope(keys, &config));
  LS_TRY(ReadTrainedPositions(keys, &config));
  return config;
}

}  // namespace longspec
