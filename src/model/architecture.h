// SPDX-License-Identifier: Apache-2.0
//
// The architectures this program runs, and what they differ in. All are decoder-only with RMS norms, rotary
// positions, grouped attention and SwiGLU; a further one of this kind is a further line of the table.
#pragma once

#include <string>
#include <string_view>

#include "kernels/ops.h"

namespace longspec {

struct Architecture {
  std::string_view name;         // general.architecture
  kernels::RopePairing pairing;  // GGUF files of llama have their query and key rows permuted, others do not
  bool qkv_bias;                 // attn_{q,k,v}.bias must be there; where it is false they may be
  bool qk_norm;  // attn_{q,k}_norm.weight (head_dim): RMS norm of each head before its rotation
};

// What runs a file of this general.architecture, which is the prefix of its metadata, too: for qwen2vl and
// qwen3vl, as text, qwen2 and qwen3. Null: nothing.
const Architecture* FindArchitecture(std::string_view name);

// "llama, qwen2, qwen3"
std::string KnownArchitectures();

}  // namespace longspec
