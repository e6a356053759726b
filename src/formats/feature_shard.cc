// SPDX-License-Identifier: Apache-2.0
#include "formats/feature_shard.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/size.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

using Json = nlohmann::json;

constexpr char kHeaderKey[] = "longspec.features";
constexpr char kKeepNone[] = "none";
constexpr int kFormatVersion = 2;
constexpr int kKeysAndValuesOnly = 1;  // a version that did not say what it keeps: keys and values in f16
constexpr int kMaxTopK = 1 << 16;

// Calls visit(name, width, numbers) for each tensor that `keep` names, in the order of a file. `tensors` is a
// FeatureTensors.
template <typename Tensors, typename Visit>
void ForEachTensor(const FeatureTarget& target, const FeatureKeep& keep, Tensors& tensors, Visit visit) {
  const size_t kv_width = Z(int64_t{target.n_head_kv} * target.head_dim), width = Z(target.n_embd);
  if (keep.kv) {
    visit(std::string("keys"), kv_width, tensors.keys);
    visit(std::string("values"), kv_width, tensors.values);
  }
  if (keep.final_hidden) visit(std::string("final_hidden"), width, tensors.final_hidden);
  tensors.hidden.resize(keep.hidden_layers.size());
  for (size_t i = 0; i < keep.hidden_layers.size(); ++i) {
    visit("hidden." + std::to_string(keep.hidden_layers[i]), width, tensors.hidden[i]);
  }
}

using KeptViews = FeatureTensors<std::span<const uint16_t>>;

std::string HeaderToJson(const FeatureHeader& h) {
  const FeatureTarget& t = h.target;
  return Json{{"version", kFormatVersion},
              {"source", h.source},
              {"keep", FormatFeatureKeep(h.keep)},
              {"type", h.keep.type == DType::kBF16 ? "bf16" : "f16"},
              {"top_k", h.top_k},
              {"next_document", h.next_document},
              {"next_piece", h.next_piece},
              {"last", h.last},
              {"target",
               {{"name", t.name},
                {"fingerprint", t.fingerprint},
                {"n_embd", t.n_embd},
                {"n_head", t.n_head},
                {"n_head_kv", t.n_head_kv},
                {"head_dim", t.head_dim},
                {"n_ff", t.n_ff},
                {"n_vocab", t.n_vocab},
                {"n_ctx", t.n_ctx},
                {"rms_eps", t.rms_eps},
                {"rope_base", t.rope_base},
                {"rope_factor", t.rope_factor},
                {"rope_scaling", t.rope_scaling},
                {"rope_frequencies", t.rope_frequencies},
                {"rope_magnitude", t.rope_magnitude}}}}
      .dump();
}

// JSON written by someone else: a key that is absent or of the wrong type is an exception of the library.
FeatureHeader ParseHeader(const Json& json, int version) {
  FeatureHeader h;
  if (version != kKeysAndValuesOnly) {
    const bool bf16 = json.at("type").get<std::string>() == "bf16";
    auto keep = ParseFeatureKeep(json.at("keep").get<std::string>(), bf16 ? DType::kBF16 : DType::kF16);
    if (!keep.ok()) throw std::runtime_error(keep.status().message());  // as of other values that are wrong
    h.keep = *std::move(keep);
  }
  h.source = json.at("source").get<std::string>();
  h.top_k = json.at("top_k").get<int>();
  h.next_document = json.at("next_document").get<int64_t>();
  h.next_piece = json.at("next_piece").get<int64_t>();
  h.last = json.at("last").get<bool>();
  const Json& from = json.at("target");
  FeatureTarget& t = h.target;
  t.name = from.at("name").get<std::string>();
  t.fingerprint = from.at("fingerprint").get<std::string>();
  const std::pair<const char*, int*> sizes[] = {
      {"n_embd", &t.n_embd},     {"n_head", &t.n_head}, {"n_head_kv", &t.n_head_kv}, {"n_ctx", &t.n_ctx},
      {"head_dim", &t.head_dim}, {"n_ff", &t.n_ff},     {"n_vocab", &t.n_vocab}};
  for (const auto& [key, size] : sizes) *size = from.at(key).get<int>();
  t.rms_eps = from.at("rms_eps").get<double>();
  t.rope_base = from.at("rope_base").get<double>();
  t.rope_factor = from.at("rope_factor").get<double>();
  t.rope_scaling = from.at("rope_scaling").get<std::string>();
  t.rope_frequencies = from.at("rope_frequencies").get<std::vector<double>>();
  t.rope_magnitude = from.at("rope_magnitude").get<double>();
  return h;
}

bool Plausible(const FeatureHeader& h) {
  const FeatureTarget& t = h.target;
  const auto size = [](int n) { return n >= 1 && n <= 1 << 24; };
  return size(t.n_embd) && size(t.n_head) && size(t.n_head_kv) && size(t.head_dim) && size(t.n_ff) &&
         size(t.n_vocab) && t.n_ctx >= 1 && t.n_head % t.n_head_kv == 0 && h.top_k >= 0 &&
         h.top_k <= kMaxTopK && t.rms_eps > 0.0 && t.rope_frequencies.size() * 2 <= Z(t.head_dim) &&
         h.next_document >= 0 && h.next_piece >= 0;
}

Result<FeatureHeader> ReadHeader(const SafetensorsFile& file) {
  const auto text = file.metadata().find(kHeaderKey);
  if (text == file.metadata().end()) {
    return Corrupt(file.path() + ": not a feature shard: its metadata has no \"" + kHeaderKey + "\"");
  }
  const Json json = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  const auto broken = [&] { return Corrupt(file.path() + ": metadata \"" + kHeaderKey + "\" is malformed"); };
  try {
    const int version = json.is_object() ? json.value("version", 0) : 0;
    if (version == 0) return broken();
    if (version != kFormatVersion && version != kKeysAndValuesOnly) {
      return Unsupported(file.path() + ": feature shard version " + std::to_string(version) +
                         ", known are 1 and " + std::to_string(kFormatVersion));
    }
    FeatureHeader header = ParseHeader(json, version);
    if (!Plausible(header)) return broken();
    return header;
  } catch (const std::exception&) {
    return broken();
  }
}

template <typename T>
Status ReadTensor(const SafetensorsFile& file, const std::string& name, DType dtype, size_t n,
                  std::span<const T>* to) {
  const TensorView* tensor = file.FindTensor(name);
  if (tensor == nullptr) return Corrupt(file.path() + ": tensor " + name + " is missing");
  if (tensor->dtype != dtype || Z(tensor->n_elements()) != n) {
    return Corrupt(file.path() + ": tensor " + name + " must hold " + std::to_string(n) + " values of type " +
                   std::string(Info(dtype).name));
  }
  if (reinterpret_cast<uintptr_t>(tensor->data) % alignof(T) != 0) {
    return Corrupt(file.path() + ": tensor " + name + " is not aligned");
  }
  *to = {reinterpret_cast<const T*>(tensor->data), n};
  return {};
}

using Parts = std::vector<std::span<const std::byte>>;

template <typename T>
std::vector<T> Copy(std::span<const T> from) {
  return {from.begin(), from.end()};
}

template <typename T>
void AppendTo(Parts& parts, const std::vector<T>& part) {
  parts.push_back(std::as_bytes(std::span(part)));
}

class Fnv {
 public:
  void Add(const void* data, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      hash_ = (hash_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3U;
    }
  }
  std::string Hex() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash_));
    return text;
  }

 private:
  uint64_t hash_ = 0xCBF29CE484222325U;
};

}  // namespace

Result<FeatureKeep> ParseFeatureKeep(const std::string& list, DType type) {
  FeatureKeep keep{.kv = false, .type = type};
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument(
        "--keep " + list + ": " + why +
        "; right is none, or a list of kv, final and hidden:LAYER, such as kv,final,hidden:4");
  };
  if (list == kKeepNone) return keep;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view name = std::string_view(list).substr(begin, end - begin);
    begin = end + 1;
    constexpr std::string_view kHidden = "hidden:";
    bool* const flag = name == "kv" ? &keep.kv : name == "final" ? &keep.final_hidden : nullptr;
    if (flag != nullptr) {
      if (*flag) return wrong("names " + std::string(name) + " twice");
      *flag = true;
    } else if (name.starts_with(kHidden)) {
      int layer = -1;
      const char* const last = name.data() + name.size();
      const auto [stop, error] = std::from_chars(name.data() + kHidden.size(), last, layer);
      if (error != std::errc() || stop != last || layer < 0) return wrong("no layer " + std::string(name));
      if (std::ranges::count(keep.hidden_layers, layer) > 0) return wrong("names a layer twice");
      keep.hidden_layers.push_back(layer);
    } else {
      return wrong(name.empty() ? "an empty name" : "unknown name " + std::string(name));
    }
  }
  std::ranges::sort(keep.hidden_layers);
  return keep;
}

std::string FormatFeatureKeep(const FeatureKeep& keep) {
  std::string list = std::string(keep.kv ? ",kv" : "") + (keep.final_hidden ? ",final" : "");
  for (const int layer : keep.hidden_layers) list += ",hidden:" + std::to_string(layer);
  return list.empty() ? kKeepNone : list.substr(1);
}

int64_t FeatureBytesPerToken(const FeatureTarget& target, const FeatureKeep& keep, int top_k) {
  size_t bytes = 2 * sizeof(int32_t) + sizeof(int8_t) + Z(top_k) * (sizeof(int32_t) + sizeof(uint16_t));
  KeptViews none;
  ForEachTensor(target, keep, none,
                [&](const std::string&, size_t width, auto&) { bytes += width * sizeof(uint16_t); });
  return static_cast<int64_t>(bytes);
}

void FeatureShardWriter::Add(const FeatureHeader& header, const FeatureSequence& s) {
  Owned owned{.tokens = Copy(s.tokens), .positions = Copy(s.positions), .loss = Copy(s.loss)};
  owned.kept = {
      .keys = Copy(s.kept.keys), .values = Copy(s.kept.values), .final_hidden = Copy(s.kept.final_hidden)};
  for (size_t i = 0; i < header.keep.hidden_layers.size(); ++i) {
    owned.kept.hidden.push_back(Copy(s.kept.hidden[i]));
  }
  if (header.top_k > 0) {
    owned.top_ids = Copy(s.top_ids);
    owned.top_log_probs = Copy(s.top_log_probs);
  }
  ends_.push_back(n_tokens() + static_cast<int64_t>(s.tokens.size()));
  sequences_.push_back(std::move(owned));
}

Status FeatureShardWriter::Write(const FeatureHeader& header, const std::string& path) {
  Parts tokens, positions, loss, top_ids, top_log_probs;
  FeatureTensors<Parts> kept;
  kept.hidden.resize(header.keep.hidden_layers.size());
  for (const Owned& s : sequences_) {
    AppendTo(tokens, s.tokens);
    AppendTo(positions, s.positions);
    AppendTo(loss, s.loss);
    AppendTo(top_ids, s.top_ids);
    AppendTo(top_log_probs, s.top_log_probs);
    AppendTo(kept.keys, s.kept.keys);
    AppendTo(kept.values, s.kept.values);
    AppendTo(kept.final_hidden, s.kept.final_hidden);
    for (size_t i = 0; i < kept.hidden.size(); ++i) AppendTo(kept.hidden[i], s.kept.hidden[i]);
  }
  SafetensorsWriter writer;
  writer.SetMetadata(kHeaderKey, HeaderToJson(header));
  const int64_t n = n_tokens();
  // Widest first, so that every tensor is aligned.
  writer.AddTensor("sequence_ends", DType::kI64, {static_cast<int64_t>(ends_.size())},
                   std::as_bytes(std::span(ends_)));
  writer.AddTensorInParts("tokens", DType::kI32, {n}, std::move(tokens));
  writer.AddTensorInParts("positions", DType::kI32, {n}, std::move(positions));
  if (header.top_k > 0) {
    writer.AddTensorInParts("top_ids", DType::kI32, {header.top_k, n}, std::move(top_ids));
    writer.AddTensorInParts("top_log_probs", DType::kF16, {header.top_k, n}, std::move(top_log_probs));
  }
  ForEachTensor(header.target, header.keep, kept, [&](const std::string& name, size_t width, Parts& parts) {
    writer.AddTensorInParts(name, header.keep.type, {static_cast<int64_t>(width), n}, std::move(parts));
  });
  writer.AddTensorInParts("loss", DType::kI8, {n}, std::move(loss));
  LS_TRY(writer.Write(path));
  *this = {};
  return {};
}

Result<std::shared_ptr<const FeatureShard>> FeatureShard::Open(const std::string& path) {
  auto shard = std::make_shared<FeatureShard>();
  LS_ASSIGN(shard->file_, SafetensorsFile::Open(path));
  LS_TRY(shard->Read());
  return std::shared_ptr<const FeatureShard>(std::move(shard));
}

Status FeatureShard::Read() {
  LS_ASSIGN(header_, ReadHeader(*file_));
  const TensorView* ends = file_->FindTensor("sequence_ends");
  LS_TRY(
      ReadTensor(*file_, "sequence_ends", DType::kI64, ends == nullptr ? 0 : Z(ends->n_elements()), &ends_));
  int64_t n = 0;
  for (const int64_t end : ends_) {
    if (end <= n) return Corrupt(path() + ": tensor sequence_ends does not ascend");
    n = end;
  }
  // No file holds more; beyond it the products below could overflow.
  if (n > int64_t{1} << 31) return Corrupt(path() + ": tensor sequence_ends exceeds the file");
  const size_t k = Z(header_.top_k);
  LS_TRY(ReadTensor(*file_, "tokens", DType::kI32, Z(n), &all_.tokens));
  LS_TRY(ReadTensor(*file_, "positions", DType::kI32, Z(n), &all_.positions));
  LS_TRY(ReadTensor(*file_, "loss", DType::kI8, Z(n), &all_.loss));
  Status kept;
  ForEachTensor(header_.target, header_.keep, all_.kept,
                [&](const std::string& name, size_t width, std::span<const uint16_t>& numbers) {
                  if (kept.ok()) kept = ReadTensor(*file_, name, header_.keep.type, Z(n) * width, &numbers);
                });
  LS_TRY(kept);
  if (k > 0) {
    LS_TRY(ReadTensor(*file_, "top_ids", DType::kI32, Z(n) * k, &all_.top_ids));
    LS_TRY(ReadTensor(*file_, "top_log_probs", DType::kF16, Z(n) * k, &all_.top_log_probs));
  }
  for (const auto& [name, ids] : {std::pair("tokens", all_.tokens), std::pair("top_ids", all_.top_ids)}) {
    for (const int32_t id : ids) {
      if (id >= 0 && id < header_.target.n_vocab) continue;
      return Corrupt(path() + ": tensor " + name + " names token " + std::to_string(id) +
                     ", outside the vocabulary of " + std::to_string(header_.target.n_vocab));
    }
  }
  return {};
}

FeatureSequence FeatureShard::sequence(int i) const {
  const size_t begin = i == 0 ? 0 : Z(ends_[Z(i) - 1]), n = Z(ends_[Z(i)]) - begin;
  const size_t k = Z(header_.top_k);
  KeptViews kept = all_.kept;
  ForEachTensor(header_.target, header_.keep, kept,
                [&](const std::string&, size_t width, std::span<const uint16_t>& numbers) {
                  numbers = numbers.subspan(begin * width, n * width);
                });
  return {.tokens = all_.tokens.subspan(begin, n),
          .positions = all_.positions.subspan(begin, n),
          .loss = all_.loss.subspan(begin, n),
          .kept = std::move(kept),
          .top_ids = all_.top_ids.subspan(begin * k, n * k),
          .top_log_probs = all_.top_log_probs.subspan(begin * k, n * k)};
}

std::string FeatureShardPath(const std::string& folder, int index) {
  char name[64];
  std::snprintf(name, sizeof(name), "features-%05d.safetensors", index);
  return (std::filesystem::path(folder) / name).string();
}

Result<std::vector<std::shared_ptr<const FeatureShard>>> OpenFeatureShards(const std::string& folder) {
  std::vector<std::shared_ptr<const FeatureShard>> shards;
  std::error_code error;
  for (int i = 0; std::filesystem::exists(FeatureShardPath(folder, i), error); ++i) {
    LS_ASSIGN(auto shard, FeatureShard::Open(FeatureShardPath(folder, i)));
    if (!shards.empty()) {
      const FeatureHeader &first = shards.front()->header(), &next = shard->header();
      if (next.target != first.target || next.source != first.source || next.top_k != first.top_k ||
          next.keep != first.keep) {
        return Corrupt(shard->path() + ": made from another model, text or options than " +
                       shards.front()->path());
      }
    }
    shards.push_back(std::move(shard));
  }
  if (!shards.empty()) return shards;
  return NotFound(folder + ": no feature shards (" + FeatureShardPath("", 0) + ", ...) in this folder");
}

namespace {

// What a fingerprint says of a type. Files of drafts hold fingerprints, so these numbers stay what they are,
// in whatever order types stand elsewhere: the oldest types have their places here, all others GGUF's number.
uint8_t NumberInFingerprints(DType dtype) {
  constexpr uint32_t kOldest[] = {0, 1, 30, 2, 3, 6, 7, 8, 12, 13, 14};  // F32 to Q6_K, as GGUF numbers them
  constexpr uint32_t kOthers = 100;
  const uint32_t number = Info(dtype).gguf_number;
  const auto* const at = std::ranges::find(kOldest, number);
  return static_cast<uint8_t>(at != std::end(kOldest) ? at - std::begin(kOldest) : kOthers + number);
}

}  // namespace

std::string TargetFingerprint(const GgufFile& file) {
  constexpr size_t kSample = 4096;
  Fnv hash;
  for (const TensorView& t : file.tensors()) {
    hash.Add(t.name.data(), t.name.size());
    const uint8_t type = NumberInFingerprints(t.dtype);
    hash.Add(&type, sizeof type);
    hash.Add(t.shape, sizeof(t.shape));
    const size_t n = std::min(kSample, t.n_bytes);
    hash.Add(t.data, n);
    hash.Add(t.data + (t.n_bytes - n), n);
  }
  return hash.Hex();
}

}  // namespace longspec
