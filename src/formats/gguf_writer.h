// SPDX-License-Identifier: Apache-2.0
//
// Writing GGUF v3 files: metadata and tensors are collected, then written at once through a temporary file
// that is renamed into place, so that a full disk leaves nothing half-written under the final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf.h"

namespace longspec {

class GgufWriter {
 public:
  // Setting a key again replaces its value. "general.alignment" (uint32; 32 when not set) is obeyed.
  // REQUIRES: it is a power of two from 8 to 1 MiB.
  void SetUint32(std::string key, uint32_t value);
  void SetInt32(std::string key, int32_t value);
  void SetUint64(std::string key, uint64_t value);
  void SetFloat32(std::string key, float value);
  void SetBool(std::string key, bool value);
  void SetString(std::string key, std::string value);
  void SetStrings(std::string key, std::vector<std::string> value);
  void SetInt32s(std::string key, std::vector<int32_t> value);
  void SetFloat32s(std::string key, std::vector<float> value);
  // As another file has it; whole numbers in the smallest type that holds them. A list of truth values or of
  // lists, which no key of a model or tokenizer is, is left out.
  void SetValue(const std::string& key, const GgufValue& value);

  // shape[0] varies fastest. The bytes are copied. REQUIRES: bytes.size() is what dtype and shape ask for;
  // the name is new and has 1 to 64 bytes; the shape has 1 to 4 positive dimensions.
  void AddTensor(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes);

  Status Write(const std::string& path) const;
  // The file's bytes, for tests and fuzzing.
  std::vector<std::byte> Serialize() const;

 private:
  struct Entry {
    std::string key;
    uint32_t type;
    std::vector<std::byte> payload;
  };
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  void Set(std::string key, uint32_t type, std::vector<std::byte> payload);
  uint64_t Alignment() const;
  // Everything before the tensors' bytes, padded.
  std::vector<std::byte> Header() const;

  std::vector<Entry> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace longspec
