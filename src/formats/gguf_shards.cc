// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_shards.h"

#include <algorithm>
#include <string_view>

namespace longspec {
namespace {

constexpr std::string_view kPattern = "-00000-of-00000.gguf";
constexpr size_t kDigits = 5;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string FiveDigits(int n) {
  const std::string digits = std::to_string(n);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

}  // namespace

std::optional<ShardName> ParseShardName(const std::string& path) {
  if (path.size() < kPattern.size()) return std::nullopt;
  const size_t start = path.size() - kPattern.size();
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const char c = path[start + i];
    if (kPattern[i] == '0' ? !IsDigit(c) : c != kPattern[i]) return std::nullopt;
  }
  ShardName name;
  name.prefix = path.substr(0, start);
  name.number = std::stoi(path.substr(start + 1, kDigits));
  name.count = std::stoi(path.substr(path.size() - kDigits - std::string_view(".gguf").size(), kDigits));
  return name;
}

std::string FormatShardName(const ShardName& name) {
  return name.prefix + "-" + FiveDigits(name.number) + "-of-" + FiveDigits(name.count) + ".gguf";
}

}  // namespace longspec
