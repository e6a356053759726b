// SPDX-License-Identifier: Apache-2.0
#include "network/architecture.h"

#include <algorithm>
#include <cmath>

namespace longspec {
namespace {

using kernels::RopePairing;

// The model of 27B, of 62 layers, is the only one whose heads are not as wide as its scores are scaled for.
float Gemma3Scale(const ModelSizes& sizes) {
  const int width = sizes.n_layer == 62 ? sizes.n_embd / sizes.n_head : sizes.head_dim;
  return 1.0F / std::sqrt(static_cast<float>(width));
}

constexpr Architecture kArchitectures[] = {
    {.name = "llama", .pairing = RopePairing::kAdjacent},
    {.name = "qwen2", .qkv_bias = true},
    {.name = "qwen3", .head_norms = true},
    {.name = "gemma3",
     .head_norms = true,
     .branch_norms = true,
     .gate = GateFunction::kGelu,
     .scaled_embedding = true,
     .window_period = 6,
     .window_freq_base = 10000.0,
     .score_scale = Gemma3Scale},
};

// Models of images and text, whose part for text is one of the above: the several positions that they rotate
// by are the same number wherever there is no image.
struct WithImages {
  std::string_view name, text;
};
constexpr WithImages kWithImages[] = {{"qwen2vl", "qwen2"}, {"qwen3vl", "qwen3"}};

}  // namespace

const Architecture* FindArchitecture(std::string_view name) {
  for (const WithImages& model : kWithImages) {
    if (model.name == name) name = model.text;
  }
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
