// SPDX-License-Identifier: Apache-2.0
//
// What a pass costs on a card: the kernels of whole steps with random weights, for shapes of models, numbers
// of rows and contexts, in one stream and as CUDA graphs.
#pragma once

#include <string>
#include <vector>

namespace longspec::cuda {

struct ModelShape {
  const char* name;
  int n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab;
};

inline constexpr ModelShape kShapes[] = {
    {"Qwen2.5-Coder-1.5B", 28, 1536, 12, 2, 128, 8960, 151936},
    {"Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256},
};

// A kind of kernel in a step, all its launches together.
struct KindTime {
  std::string kind;
  double ms = 0, bytes = 0, operations = 0;  // of the step; operations are multiplications with an addition
};

struct StepTime {
  const char* model;
  int rows, context;
  bool prompt;  // rows follow one another, each sees those before it
  double ms = 0;
  std::vector<KindTime> kinds;
};

// Stops to begin with new cells after `seconds`.
std::vector<StepTime> TimeSteps(double seconds, int most_rows);

// Bytes read and written each second by a copy on the card.
double CopyRate();

}  // namespace longspec::cuda
