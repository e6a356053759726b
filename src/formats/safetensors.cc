// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "formats/atomic_file.h"
#include "formats/gguf_format.h"

namespace longspec {
namespace {

using OrderedJson = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors is read as the machine stores it");

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 3;                  // object, tensor, shape
constexpr size_t kMaxDims = 4;                // of a TensorView
constexpr uint64_t kMaxElements = uint64_t{1} << 48;
constexpr std::string_view kMetadataKey = "__metadata__";

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr TypeName kSafetensorsTypes[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16},
    {"F64", DType::kF64}, {"I8", DType::kI8},   {"I16", DType::kI16},
    {"I32", DType::kI32}, {"I64", DType::kI64}, {"BOOL", DType::kI8},  // bytes 0 and 1; written back as I8
};

const TypeName* FindType(std::string_view name) {
  const auto* it = std::ranges::find(kSafetensorsTypes, name, &TypeName::name);
  return it == std::end(kSafetensorsTypes) ? nullptr : it;
}

const TypeName* FindType(DType dtype) {
  const auto* it = std::ranges::find(kSafetensorsTypes, dtype, &TypeName::dtype);
  return it == std::end(kSafetensorsTypes) ? nullptr : it;
}

class SafetensorsContents final : public SafetensorsFile {
 public:
  explicit SafetensorsContents(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* FindTensor(std::string_view name) const override {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &tensors_[it->second];
  }

  Status Read(std::span<const std::byte> bytes);
  void Own(MappedFile file) { file_.emplace(std::move(file)); }

 private:
  Status Error(const std::string& what) const { return Corrupt(path_ + ": " + what); }
  Status TensorError(const std::string& name, const std::string& what) const {
    return Error("tensor " + Quote(name) + ": " + what);
  }
  Result<OrderedJson> ParseHeader(std::string_view text) const;
  Status ReadMetadata(const OrderedJson& json);
  Status ReadTensor(const std::string& name, const OrderedJson& json, std::span<const std::byte> data);
  Status ReadShape(const OrderedJson& json, TensorView* tensor, uint64_t* n_elements) const;
  Status CheckCoverage(std::span<const std::byte> data);

  std::string path_;
  std::optional<MappedFile> file_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

// Names may not repeat (the second would silently win) and nothing nests deeper than a tensor's shape.
Result<OrderedJson> SafetensorsContents::ParseHeader(std::string_view text) const {
  std::unordered_set<std::string> names;
  std::string repeated;
  bool too_deep = false;
  const auto watch = [&](int depth, OrderedJson::parse_event_t event, OrderedJson& value) {
    const bool opens =
        event == OrderedJson::parse_event_t::object_start || event == OrderedJson::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) too_deep = true;
    if (event == OrderedJson::parse_event_t::key && depth == 1) {
      auto name = value.get<std::string>();
      if (!names.insert(name).second && repeated.empty()) repeated = std::move(name);
    }
    return !too_deep;
  };
  OrderedJson json = OrderedJson::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (too_deep) return Error("the header nests deeper than a tensor's shape");
  if (json.is_discarded() || !json.is_object()) return Error("the header is not a JSON object");
  if (!repeated.empty()) return Error("tensor " + Quote(repeated) + " appears twice");
  return json;
}

Status SafetensorsContents::Read(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) return Error("not a safetensors file: fewer than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - sizeof(length) || length > kMaxHeader) {
    return Error("not a safetensors file: a header of " + std::to_string(length) + " bytes in a file of " +
                 std::to_string(bytes.size()));
  }
  const auto data = bytes.subspan(sizeof(length) + length);
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + sizeof(length);
  LS_ASSIGN(const OrderedJson header, ParseHeader({text, static_cast<size_t>(length)}));
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      LS_TRY(ReadMetadata(value));
    } else {
      LS_TRY(ReadTensor(name, value, data));
    }
  }
  return CheckCoverage(data);
}

Status SafetensorsContents::ReadMetadata(const OrderedJson& json) {
  if (!json.is_object()) return Error("__metadata__ must be an object of strings");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Error("__metadata__ " + Quote(key) + " must be a string");
    metadata_[key] = value.get<std::string>();
  }
  return {};
}

Status SafetensorsContents::ReadShape(const OrderedJson& json, TensorView* tensor,
                                      uint64_t* n_elements) const {
  if (!json.is_array()) return TensorError(tensor->name, "shape must be an array");
  if (json.size() > kMaxDims) {
    return TensorError(tensor->name, std::to_string(json.size()) + " dimensions, at most " +
                                         std::to_string(kMaxDims) + " are supported");
  }
  *n_elements = 1;
  tensor->n_dims = static_cast<int>(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const OrderedJson& dim = json[json.size() - 1 - i];
    if (!dim.is_number_unsigned()) return TensorError(tensor->name, "dimensions must be whole numbers");
    const auto n = dim.get<uint64_t>();
    if (n == 0 || n > kMaxElements || *n_elements > kMaxElements / n) {
      return TensorError(tensor->name, "dimension " + std::to_string(n) + " is out of range");
    }
    *n_elements *= n;
    tensor->shape[i] = static_cast<int64_t>(n);
  }
  return {};
}

Status SafetensorsContents::ReadTensor(const std::string& name, const OrderedJson& json,
                                       std::span<const std::byte> data) {
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return TensorError(name, "needs dtype, shape and data_offsets");
  }
  TensorView tensor;
  tensor.name = name;
  if (!json["dtype"].is_string()) return TensorError(name, "dtype must be a string");
  const auto type_name = json["dtype"].get<std::string>();
  const TypeName* type = FindType(type_name);
  if (type == nullptr) {
    return Unsupported(path_ + ": tensor " + Quote(name) + " has type " + Quote(type_name) +
                       "; supported are F32, F16, BF16, F64, I8, I16, I32, I64, BOOL");
  }
  tensor.dtype = type->dtype;
  uint64_t n_elements = 0;
  LS_TRY(ReadShape(json["shape"], &tensor, &n_elements));
  const OrderedJson& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return TensorError(name, "data_offsets must be two whole numbers");
  }
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return TensorError(name, "bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                                 " are not in the file's " + std::to_string(data.size()));
  }
  const uint64_t expected = n_elements * static_cast<uint64_t>(Info(tensor.dtype).block_bytes);
  if (end - begin != expected) {
    return TensorError(
        name, std::to_string(end - begin) + " bytes, its type and shape need " + std::to_string(expected));
  }
  tensor.data = data.data() + begin;
  tensor.n_bytes = static_cast<size_t>(expected);
  tensors_.push_back(std::move(tensor));
  return {};
}

// Every byte belongs to one tensor: what overlaps or is left over is no checkpoint.
Status SafetensorsContents::CheckCoverage(std::span<const std::byte> data) {
  std::ranges::sort(tensors_, {}, &TensorView::data);
  const std::byte* at = data.data();
  for (const TensorView& tensor : tensors_) {
    if (tensor.data < at) return TensorError(tensor.name, "its bytes overlap another tensor's");
    if (tensor.data > at) return TensorError(tensor.name, "bytes before it belong to no tensor");
    at += tensor.n_bytes;
  }
  if (at != data.data() + data.size()) {
    return Error(std::to_string(data.data() + data.size() - at) + " bytes at the end belong to no tensor");
  }
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  return {};
}

}  // namespace

bool IsSafetensorsType(DType dtype) { return FindType(dtype) != nullptr; }

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  auto contents = std::make_shared<SafetensorsContents>(path);
  LS_ASSIGN(MappedFile file, MappedFile::Open(path));
  try {
    LS_TRY(contents->Read(file.bytes()));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(path + ": not enough memory for its header");
  }
  contents->Own(std::move(file));
  return std::shared_ptr<const SafetensorsFile>(std::move(contents));
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Parse(std::span<const std::byte> bytes,
                                                                      const std::string& name) {
  auto contents = std::make_shared<SafetensorsContents>(name);
  LS_TRY(contents->Read(bytes));
  return std::shared_ptr<const SafetensorsFile>(std::move(contents));
}

void SafetensorsWriter::AddTensor(std::string name, DType dtype, std::vector<int64_t> shape,
                                  std::span<const std::byte> bytes) {
  AddTensorInParts(std::move(name), dtype, std::move(shape), {bytes});
  Tensor& tensor = tensors_.back();
  tensor.own.assign(bytes.begin(), bytes.end());
  tensor.parts.clear();
}

void SafetensorsWriter::AddTensorInParts(std::string name, DType dtype, std::vector<int64_t> shape,
                                         std::vector<std::span<const std::byte>> parts) {
  LS_CHECK(FindType(dtype) != nullptr && name != kMetadataKey && shape.size() <= kMaxDims);
  LS_CHECK(std::ranges::find(tensors_, name, &Tensor::name) == tensors_.end());
  auto n_bytes = static_cast<size_t>(Info(dtype).block_bytes);
  for (const int64_t n : shape) n_bytes *= static_cast<size_t>(n);
  size_t n_given = 0;
  for (const auto& part : parts) n_given += part.size();
  LS_CHECK(n_bytes == n_given && n_bytes > 0);
  tensors_.push_back({std::move(name), dtype, std::move(shape), n_bytes, {}, std::move(parts)});
}

std::vector<std::byte> SafetensorsWriter::Header() const {
  OrderedJson json = OrderedJson::object();
  if (!metadata_.empty()) json[std::string(kMetadataKey)] = metadata_;
  size_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    const std::vector<int64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
    const size_t end = offset + tensor.n_bytes;
    json[tensor.name] = {
        {"dtype", FindType(tensor.dtype)->name}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // tensor bytes begin at a multiple of 8
  const uint64_t length = text.size();
  std::vector<std::byte> bytes(sizeof(length) + text.size());
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), text.data(), text.size());
  return bytes;
}

Status SafetensorsWriter::Write(const std::string& path) const {
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  LS_TRY(file.Write(Header()));
  for (const Tensor& tensor : tensors_) {
    LS_TRY(file.Write(tensor.own));
    for (const auto& part : tensor.parts) LS_TRY(file.Write(part));
  }
  return file.Commit();
}

std::vector<std::byte> SafetensorsWriter::Serialize() const {
  std::vector<std::byte> bytes = Header();
  for (const Tensor& tensor : tensors_) {
    bytes.insert(bytes.end(), tensor.own.begin(), tensor.own.end());
    for (const auto& part : tensor.parts) bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

}  // namespace longspec
