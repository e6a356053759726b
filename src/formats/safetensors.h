// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing safetensors files, the container of Hugging Face checkpoints: an 8-byte length, a JSON
// header, tensor bytes. Every name, type, shape and offset is checked against the bytes that are there before
// anything is returned. An open file is immutable and may be shared between threads; tensor views stay valid
// as long as it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longspec/status.h"
#include "tensor/tensor_view.h"

namespace longspec {

class SafetensorsFile {
 public:
  // Memory-mapped. Errors name the file, and the tensor at fault.
  static Result<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);
  // A file that is already in memory, for tests and fuzzing. `bytes` must outlive the result.
  static Result<std::shared_ptr<const SafetensorsFile>> Parse(std::span<const std::byte> bytes,
                                                              const std::string& name);

  virtual ~SafetensorsFile() = default;
  virtual const std::string& path() const = 0;
  virtual const std::map<std::string, std::string>& metadata() const = 0;  // "__metadata__"
  // In order of their bytes. Shapes are turned to TensorView's order: a (out, in) matrix has shape[0] = in.
  virtual const std::vector<TensorView>& tensors() const = 0;
  virtual const TensorView* FindTensor(std::string_view name) const = 0;
};

// Tensors are collected, then written at once through a temporary file that is renamed into place.
class SafetensorsWriter {
 public:
  void SetMetadata(std::string key, std::string value) { metadata_[std::move(key)] = std::move(value); }
  // shape[0] varies fastest, as in TensorView. The bytes are copied. REQUIRES: bytes.size() is what dtype and
  // shape ask for; the name is new; the type is no block type.
  void AddTensor(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes);
  // The same without a copy: the tensor's bytes are these parts, one after the other, which must outlive the
  // writer.
  void AddTensorInParts(std::string name, DType dtype, std::vector<int64_t> shape,
                        std::vector<std::span<const std::byte>> parts);

  Status Write(const std::string& path) const;
  std::vector<std::byte> Serialize() const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    size_t n_bytes;
    std::vector<std::byte> own;  // the bytes, or none:
    std::vector<std::span<const std::byte>> parts;
  };
  std::vector<std::byte> Header() const;

  std::map<std::string, std::string> metadata_;
  std::vector<Tensor> tensors_;
};

// True for the types a safetensors file can hold.
bool IsSafetensorsType(DType dtype);

}  // namespace longspec
