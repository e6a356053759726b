// SPDX-License-Identifier: Apache-2.0
//
// Typed look-ups: one conversion per type (nothing where the value is of another kind) and the errors around
// it.
#include <limits>
#include <optional>

#include "formats/gguf.h"
#include "formats/gguf_format.h"

namespace longspec {
namespace {

constexpr uint64_t kMaxInt64 = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

struct Uint {
  using Type = uint64_t;
  static constexpr const char* kExpected = "an integer that is not negative";
  static std::optional<Type> From(const GgufValue& value) {
    if (const auto* u = std::get_if<uint64_t>(&value)) return *u;
    const auto* i = std::get_if<int64_t>(&value);
    return i != nullptr && *i >= 0 ? std::optional(static_cast<uint64_t>(*i)) : std::nullopt;
  }
};

struct Float {
  using Type = double;
  static constexpr const char* kExpected = "a number";
  static std::optional<Type> From(const GgufValue& value) {
    if (const auto* d = std::get_if<double>(&value)) return *d;
    if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
    if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
    return std::nullopt;
  }
};

template <typename T>
std::optional<T> Exactly(const GgufValue& value) {
  const T* found = std::get_if<T>(&value);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

struct String {
  using Type = std::string;
  static constexpr const char* kExpected = "a string";
  static std::optional<Type> From(const GgufValue& value) { return Exactly<Type>(value); }
};

struct Bool {
  using Type = bool;
  static constexpr const char* kExpected = "a bool";
  static std::optional<Type> From(const GgufValue& value) { return Exactly<Type>(value); }
};

// The array's values if they are of type T, else null.
template <typename T>
const std::vector<T>* ArrayOf(const GgufValue& value) {
  const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value);
  return array == nullptr ? nullptr : std::get_if<std::vector<T>>(&(*array)->values);
}

template <typename To, typename From>
std::vector<To> Convert(const std::vector<From>& from) {
  std::vector<To> to;
  to.reserve(from.size());
  for (const From value : from) to.push_back(static_cast<To>(value));
  return to;
}

struct Strings {
  using Type = std::vector<std::string>;
  static constexpr const char* kExpected = "an array of strings";
  static std::optional<Type> From(const GgufValue& value) {
    const Type* strings = ArrayOf<std::string>(value);
    return strings != nullptr ? std::optional(*strings) : std::nullopt;
  }
};

struct Ints {
  using Type = std::vector<int64_t>;
  static constexpr const char* kExpected = "an array of integers up to 2^63 - 1";
  static std::optional<Type> From(const GgufValue& value) {
    if (const Type* ints = ArrayOf<int64_t>(value)) return *ints;
    const auto* uints = ArrayOf<uint64_t>(value);
    if (uints == nullptr) return std::nullopt;
    for (const uint64_t u : *uints) {
      if (u > kMaxInt64) return std::nullopt;
    }
    return Convert<int64_t>(*uints);
  }
};

struct Floats {
  using Type = std::vector<float>;
  static constexpr const char* kExpected = "an array of numbers";
  static std::optional<Type> From(const GgufValue& value) {
    if (const auto* doubles = ArrayOf<double>(value)) return Convert<float>(*doubles);
    if (const auto* uints = ArrayOf<uint64_t>(value)) return Convert<float>(*uints);
    if (const auto* ints = ArrayOf<int64_t>(value)) return Convert<float>(*ints);
    return std::nullopt;
  }
};

template <typename Kind>
Result<typename Kind::Type> Get(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) {
    return NotFound(file.path() + ": metadata key " + Quote(key) + " is missing; it must be " +
                    Kind::kExpected);
  }
  std::optional<typename Kind::Type> converted = Kind::From(*value);
  if (!converted)
    return Corrupt(file.path() + ": metadata key " + Quote(key) + " must be " + Kind::kExpected);
  return std::move(*converted);
}

template <typename Kind>
Result<typename Kind::Type> GetOr(const GgufFile& file, std::string_view key, typename Kind::Type fallback) {
  if (!file.Has(key)) return fallback;
  return Get<Kind>(file, key);
}

}  // namespace

Result<uint64_t> GgufFile::GetUint(std::string_view key) const { return Get<Uint>(*this, key); }
Result<double> GgufFile::GetFloat(std::string_view key) const { return Get<Float>(*this, key); }
Result<std::string> GgufFile::GetString(std::string_view key) const { return Get<String>(*this, key); }
Result<bool> GgufFile::GetBool(std::string_view key) const { return Get<Bool>(*this, key); }
Result<std::vector<std::string>> GgufFile::GetStrings(std::string_view key) const {
  return Get<Strings>(*this, key);
}
Result<std::vector<int64_t>> GgufFile::GetInts(std::string_view key) const { return Get<Ints>(*this, key); }
Result<std::vector<float>> GgufFile::GetFloats(std::string_view key) const { return Get<Floats>(*this, key); }
Result<uint64_t> GgufFile::GetUintOr(std::string_view key, uint64_t fallback) const {
  return GetOr<Uint>(*this, key, fallback);
}
Result<double> GgufFile::GetFloatOr(std::string_view key, double fallback) const {
  return GetOr<Float>(*this, key, fallback);
}
Result<std::string> GgufFile::GetStringOr(std::string_view key, std::string fallback) const {
  return GetOr<String>(*this, key, std::move(fallback));
}
Result<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  return GetOr<Bool>(*this, key, fallback);
}

}  // namespace longspec
