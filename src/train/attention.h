// SPDX-License-Identifier: Apache-2.0
//
// Attention over packed sequences: rows of sequences one behind the other, of which `ends` says where each
// ends. It never crosses an end. Heads are (n, n_heads, head_dim), results (n, n_heads * head_dim), both f32.
// With Precision::kBf16 products are in bf16: on a CPU by loops of its own (bf16_attention.cc), on a GPU,
// where sequences stand beside each other (padded_attention.cc). Free functions, from any thread.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "train/trainee_options.h"

namespace longspec::train {

using Ends = std::vector<int64_t>;

struct Heads {
  at::Tensor q, k, v;
};

// Query i sees keys i - window .. i; window < 0: all up to i.
at::Tensor CausalAttention(const Heads& heads, const Ends& ends, Precision precision, int64_t window = -1);
// Query i sees keys 0 .. i - lag; 0 with none.
at::Tensor LaggedAttention(const Heads& heads, const Ends& ends, Precision precision, int64_t lag);

// What each query has of a draft's own earlier steps: row i is query i's.
struct OwnStep {
  at::Tensor keys, values;
};
// What queries see: query i of a sequence its first seen[i] keys, of these the last window + 1 (window < 0:
// all). Sequences have as many queries as query_ends says and as many keys as key_ends.
struct Visibility {
  Ends query_ends, key_ends;
  std::vector<int64_t> seen;
  int64_t window = -1;
};
// Beside what `sees` says each query sees row i of every own step: the visibility of training-time test
// (EAGLE-3, "diagonals") and of Beagle's windows. 0 with none of both.
at::Tensor SeenAttention(const Heads& heads, const Visibility& sees, std::span<const OwnStep> own,
                         Precision precision);

// The same in one call for all sequences, each filled up to the longest: for a GPU.
at::Tensor PaddedAttention(const Heads& heads, const Visibility& sees, std::span<const OwnStep> own,
                           Precision precision);

// The same in bf16. REQUIRES: HasRowKernels() (row_kernels.h), all on the CPU.
at::Tensor Bf16Attention(const Heads& heads, const Visibility& sees, std::span<const OwnStep> own);

}  // namespace longspec::train
