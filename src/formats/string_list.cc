// SPDX-License-Identifier: Apache-2.0
#include "formats/string_list.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "base/check.h"

namespace longspec {
namespace {

constexpr size_t kMost = std::numeric_limits<uint32_t>::max();

void Put(const void* bytes, size_t n, std::vector<std::byte>& out) {
  const size_t end = out.size();
  out.resize(end + n);
  if (n > 0) std::memcpy(out.data() + end, bytes, n);
}

void PutNumber(size_t number, std::vector<std::byte>& out) {
  LS_CHECK(number <= kMost);
  const auto value = static_cast<uint32_t>(number);
  Put(&value, sizeof(value), out);
}

// The number at the beginning of `bytes`, which then begin behind it.
std::optional<uint32_t> Take(std::span<const std::byte>& bytes) {
  uint32_t value = 0;
  if (bytes.size() < sizeof(value)) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes = bytes.subspan(sizeof(value));
  return value;
}

}  // namespace

std::vector<std::byte> PackStrings(std::span<const std::string> strings) {
  std::vector<std::byte> out;
  PutNumber(strings.size(), out);
  for (const std::string& text : strings) {
    PutNumber(text.size(), out);
    Put(text.data(), text.size(), out);
  }
  return out;
}

Result<std::vector<std::string>> UnpackStrings(std::span<const std::byte> bytes, const std::string& name) {
  const Status damaged = Corrupt(name + ": its strings end before their lengths say");
  const auto n = Take(bytes);
  if (!n || *n > bytes.size() / sizeof(uint32_t)) return damaged;
  std::vector<std::string> strings;
  for (uint32_t i = 0; i < *n; ++i) {
    const auto length = Take(bytes);
    if (!length || *length > bytes.size()) return damaged;
    strings.emplace_back(reinterpret_cast<const char*>(bytes.data()), *length);
    bytes = bytes.subspan(*length);
  }
  if (!bytes.empty()) return Corrupt(name + ": bytes follow its strings");
  return strings;
}

}  // namespace longspec
