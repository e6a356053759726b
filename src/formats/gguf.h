// SPDX-License-Identifier: Apache-2.0
//
// Reading GGUF v2 and v3 model files: memory-mapped, any number of shards, every count, offset and shape
// checked against the bytes that are there before anything is returned. An open file is immutable and may be
// shared between threads; tensor views stay valid as long as it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "longspec/status.h"
#include "tensor/tensor_view.h"

namespace longspec {

struct GgufArray;
// Integers are widened to int64 or uint64 by signedness, floats to double; bool stays bool.
using GgufValue =
    std::variant<uint64_t, int64_t, double, bool, std::string, std::shared_ptr<const GgufArray>>;

// One element type per array, as in the file. Nested arrays are kept as values.
struct GgufArray {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string>, std::vector<GgufValue>>
      values;
  size_t size() const;
};

// One file, all of it.
struct GgufShard {
  std::span<const std::byte> bytes;
  std::optional<FileIdentity> identity;  // none: it is in memory only
};

// Whether the file begins with the bytes of a GGUF file. False also of what cannot be read.
bool BeginsAsGguf(const std::string& path);

class GgufFile {
 public:
  // For `name-00001-of-0000N.gguf`, opens all N shards. Errors name the file, and the tensor or key at fault.
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  // The same of a file that may be another one: null if it does not begin as a GGUF file, or cannot be read.
  static Result<std::shared_ptr<const GgufFile>> OpenIfGguf(const std::string& path);

  // A single file that is already in memory, for tests and fuzzing. `bytes` must outlive the result.
  static Result<std::shared_ptr<const GgufFile>> Parse(std::span<const std::byte> bytes,
                                                       const std::string& name);

  virtual ~GgufFile() = default;
  virtual const std::string& path() const = 0;
  virtual uint32_t version() const = 0;
  virtual uint64_t file_bytes() const = 0;  // all shards together
  virtual const std::vector<GgufShard>& shards() const = 0;

  // Metadata in file order (the first shard's), and look-up: null when absent.
  virtual const std::vector<std::pair<std::string, GgufValue>>& metadata() const = 0;
  virtual const GgufValue* Find(std::string_view key) const = 0;

  virtual const std::vector<TensorView>& tensors() const = 0;
  virtual const TensorView* FindTensor(std::string_view name) const = 0;

  // Typed look-ups. Integers of either signedness are accepted where they fit. The error names file and key.
  Result<uint64_t> GetUint(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;  // integers are accepted
  Result<std::string> GetString(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::vector<std::string>> GetStrings(std::string_view key) const;
  Result<std::vector<int64_t>> GetInts(std::string_view key) const;
  Result<std::vector<float>> GetFloats(std::string_view key) const;
  // The value, or `fallback` when the key is absent; a key of the wrong type is still an error.
  Result<uint64_t> GetUintOr(std::string_view key, uint64_t fallback) const;
  Result<double> GetFloatOr(std::string_view key, double fallback) const;
  Result<std::string> GetStringOr(std::string_view key, std::string fallback) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
};

}  // namespace longspec
