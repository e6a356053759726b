// SPDX-License-Identifier: Apache-2.0
#include "model/architecture.h"

#include <algorithm>

namespace longspec {
namespace {

using kernels::RopePairing;

constexpr Architecture kArchitectures[] = {
    {"llama", RopePairing::kAdjacent, false, false},
    {"qwen2", RopePairing::kHalfSplit, true, false},
    {"qwen3", RopePairing::kHalfSplit, false, true},
};

}  // namespace

const Architecture* FindArchitecture(std::string_view name) {
  const auto* const it = std::ranges::find(kArchitectures, name, &Architecture::name);
  return it == std::end(kArchitectures) ? nullptr : it;
}

std::string KnownArchitectures() {
  std::string names;
  for (const Architecture& a : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += a.name;
  }
  return names;
}

}  // namespace longspec
