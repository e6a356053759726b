// SPDX-License-Identifier: Apache-2.0
//
// Writing GGUF v3 files: metadata and tensors are collected, then written at once through a temporary file that
// is renamed into place, so that a full disk leaves nothing half-written under the final name.
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
  void SetUint32(std::string key, uint32_t value);
  void SetInt32(std::string key, int32_t value);
  void SetUint64(std::string key, uint64_t value);
  void SetFloat32(std::string key, float value);
  void SetBool(std::string key, bool value);
  void SetString(std::string key, std::string value);
  void SetStrings(std::string key, std::vector<std::string> value);
  void SetInt32s(std::string key, std::vector<int32_t> value);
  void SetFloat32s(std::string key, std::vector<float> value);

  // shape[0] varies fastest. REQUIRES: bytes.size() is what dtype and shape ask for. The bytes are copied.
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
  std::vector<Entry> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace longspec
