// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "base/status_macros.h"
#include "formats/atomic_file.h"
#include "formats/gguf_format.h"

namespace longspec {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
void Put(Bytes* out, T value) {
  static_assert(std::endian::native == std::endian::little, "GGUF is written as the machine stores it");
  const size_t end = out->size();
  out->resize(end + sizeof value);
  std::memcpy(out->data() + end, &value, sizeof value);
}

void PutString(Bytes* out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  out->insert(out->end(), p, p + text.size());
}

template <typename T>
Bytes Scalar(T value) {
  Bytes payload;
  Put(&payload, value);
  return payload;
}

Bytes ArrayHeader(GgufType type, size_t n) {
  Bytes payload;
  Put(&payload, type);
  Put<uint64_t>(&payload, n);
  return payload;
}

template <typename T>
Bytes Array(GgufType type, const std::vector<T>& values) {
  Bytes payload = ArrayHeader(type, values.size());
  for (const T value : values) Put(&payload, value);
  return payload;
}

uint64_t AlignUp(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

constexpr uint32_t Number(GgufType type) { return static_cast<uint32_t>(type); }

struct CopyArray {
  const std::string& key;
  GgufWriter& writer;
  void operator()(const std::vector<std::string>& values) const { writer.SetStrings(key, values); }
  void operator()(const std::vector<double>& values) const {
    writer.SetFloat32s(key, {values.begin(), values.end()});
  }
  void operator()(const std::vector<int64_t>& values) const {
    writer.SetInt32s(key, {values.begin(), values.end()});
  }
  void operator()(const std::vector<uint64_t>& values) const {
    writer.SetInt32s(key, {values.begin(), values.end()});
  }
  // No key that a tokenizer or a Llama has is of these.
  void operator()(const std::vector<bool>&) const {}
  void operator()(const std::vector<GgufValue>&) const {}
};

struct CopyValue {
  const std::string& key;
  GgufWriter& writer;
  void operator()(uint64_t value) const {
    if (value <= UINT32_MAX) return writer.SetUint32(key, static_cast<uint32_t>(value));
    writer.SetUint64(key, value);
  }
  void operator()(int64_t value) const { writer.SetInt32(key, static_cast<int32_t>(value)); }
  void operator()(double value) const { writer.SetFloat32(key, static_cast<float>(value)); }
  void operator()(bool value) const { writer.SetBool(key, value); }
  void operator()(const std::string& value) const { writer.SetString(key, value); }
  void operator()(const std::shared_ptr<const GgufArray>& array) const {
    std::visit(CopyArray{key, writer}, array->values);
  }
};

}  // namespace

void GgufWriter::Set(std::string key, uint32_t type, std::vector<std::byte> payload) {
  LS_CHECK(!key.empty());
  const auto old = std::ranges::find(metadata_, key, &Entry::key);
  if (old != metadata_.end()) {
    *old = {std::move(key), type, std::move(payload)};
  } else {
    metadata_.push_back({std::move(key), type, std::move(payload)});
  }
}

void GgufWriter::SetUint32(std::string key, uint32_t value) {
  Set(std::move(key), Number(GgufType::kUint32), Scalar(value));
}
void GgufWriter::SetInt32(std::string key, int32_t value) {
  Set(std::move(key), Number(GgufType::kInt32), Scalar(value));
}
void GgufWriter::SetUint64(std::string key, uint64_t value) {
  Set(std::move(key), Number(GgufType::kUint64), Scalar(value));
}
void GgufWriter::SetFloat32(std::string key, float value) {
  Set(std::move(key), Number(GgufType::kFloat32), Scalar(value));
}
void GgufWriter::SetBool(std::string key, bool value) {
  Set(std::move(key), Number(GgufType::kBool), Scalar<uint8_t>(value));
}
void GgufWriter::SetString(std::string key, std::string value) {
  Bytes payload;
  PutString(&payload, value);
  Set(std::move(key), Number(GgufType::kString), std::move(payload));
}
void GgufWriter::SetStrings(std::string key, std::vector<std::string> value) {
  Bytes payload = ArrayHeader(GgufType::kString, value.size());
  for (const std::string& text : value) PutString(&payload, text);
  Set(std::move(key), Number(GgufType::kArray), std::move(payload));
}
void GgufWriter::SetInt32s(std::string key, std::vector<int32_t> value) {
  Set(std::move(key), Number(GgufType::kArray), Array(GgufType::kInt32, value));
}
void GgufWriter::SetFloat32s(std::string key, std::vector<float> value) {
  Set(std::move(key), Number(GgufType::kArray), Array(GgufType::kFloat32, value));
}

void GgufWriter::SetValue(const std::string& key, const GgufValue& value) {
  std::visit(CopyValue{key, *this}, value);
}

void GgufWriter::AddTensor(std::string name, DType dtype, std::vector<int64_t> shape,
                           std::span<const std::byte> bytes) {
  LS_CHECK(!name.empty() && name.size() <= kGgufMaxTensorName);
  LS_CHECK(std::ranges::find(tensors_, name, &Tensor::name) == tensors_.end());
  LS_CHECK(!shape.empty() && shape.size() <= 4);
  size_t n_bytes = RowBytes(dtype, shape[0]);
  for (size_t i = 1; i < shape.size(); ++i) n_bytes *= static_cast<size_t>(shape[i]);
  LS_CHECK(std::ranges::min(shape) > 0 && n_bytes == bytes.size());
  tensors_.push_back({std::move(name), dtype, std::move(shape), {bytes.begin(), bytes.end()}});
}

uint64_t GgufWriter::Alignment() const {
  const auto entry = std::ranges::find(metadata_, kGgufAlignmentKey, &Entry::key);
  if (entry == metadata_.end()) return kGgufDefaultAlignment;
  LS_CHECK(entry->type == Number(GgufType::kUint32));
  uint32_t alignment;
  std::memcpy(&alignment, entry->payload.data(), sizeof alignment);
  LS_CHECK(std::has_single_bit(alignment) && alignment >= kGgufMinAlignment &&
           alignment <= kGgufMaxAlignment);
  return alignment;
}

std::vector<std::byte> GgufWriter::Header() const {
  const uint64_t alignment = Alignment();
  Bytes out;
  Put(&out, kGgufMagic);
  Put(&out, kGgufVersion);
  Put<uint64_t>(&out, tensors_.size());
  Put<uint64_t>(&out, metadata_.size());
  for (const Entry& entry : metadata_) {
    PutString(&out, entry.key);
    Put(&out, entry.type);
    out.insert(out.end(), entry.payload.begin(), entry.payload.end());
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(&out, tensor.name);
    Put(&out, static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t dim : tensor.shape) Put(&out, dim);
    Put(&out, Info(tensor.dtype).gguf_number);
    Put(&out, offset);
    offset = AlignUp(offset + tensor.bytes.size(), alignment);
  }
  out.resize(AlignUp(out.size(), alignment));
  return out;
}

Status GgufWriter::Write(const std::string& path) const {
  const Bytes padding(Alignment());
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  LS_TRY(file.Write(Header()));
  for (const Tensor& tensor : tensors_) {
    const size_t n_padding = AlignUp(tensor.bytes.size(), padding.size()) - tensor.bytes.size();
    LS_TRY(file.Write(tensor.bytes));
    LS_TRY(file.Write({padding.data(), n_padding}));
  }
  return file.Commit();
}

std::vector<std::byte> GgufWriter::Serialize() const {
  const uint64_t alignment = Alignment();
  Bytes out = Header();
  for (const Tensor& tensor : tensors_) {
    out.insert(out.end(), tensor.bytes.begin(), tensor.bytes.end());
    out.resize(AlignUp(out.size(), alignment));
  }
  return out;
}

}  // namespace longspec
