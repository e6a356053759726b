// SPDX-License-Identifier: Apache-2.0
//
// The architectures this program runs, and what they differ in. All are decoder-only with RMS norms, rotary
// positions, grouped attention and a gated MLP; a further one of this kind is a further line of the table.
#pragma once

#include <string>
#include <string_view>

#include "kernels/ops.h"
#include "network/model_spec.h"

namespace longspec {

struct Architecture {
  std::string_view name;                                            // general.architecture
  kernels::RopePairing pairing = kernels::RopePairing::kHalfSplit;  // GGUF files of llama have their
                                                                    // query and key rows permuted
  bool qkv_bias = false;      // attn_{q,k,v}.bias must be there; where it is false they may be
  bool head_norms = false;    // attn_{q,k}_norm.weight (head_dim): RMS norm of each head before its rotation
  bool branch_norms = false;  // post_{attention,ffw}_norm.weight (n_embd): of what is added to the stream
  GateFunction gate = GateFunction::kSilu;
  bool scaled_embedding = false;  // times sqrt(n_embd)
  // Layers see attention.sliding_window positions, but for each window_period-th, which sees all. 0: all do.
  int window_period = 0;
  double window_freq_base = 0.0;  // of the rotation in layers with a window, which is not scaled
  // What scores are multiplied by, where that is not 1 / sqrt(head_dim).
  float (*score_scale)(const ModelSizes& sizes) = nullptr;

  // Whether its layers do what those of llama and qwen2 do, and no more; the same beside norms of heads,
  // which qwen3 has.
  bool is_plain() const { return !head_norms && is_plain_but_for_head_norms(); }
  bool is_plain_but_for_head_norms() const {
    return !branch_norms && gate == GateFunction::kSilu && !scaled_embedding && window_period == 0;
  }
};

// The architecture that runs a file of this general.architecture, which is the prefix of its metadata, too.
// The text parts of qwen2vl and qwen3vl run as qwen2 and qwen3. Null if none runs it.
const Architecture* FindArchitecture(std::string_view name);

// "llama, qwen2, qwen3, ..."
std::string KnownArchitectures();

}  // namespace longspec
