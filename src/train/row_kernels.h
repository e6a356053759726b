// SPDX-License-Identifier: Apache-2.0
//
// Loops over rows of bf16 scores, for CPUs with AVX-512 BF16: what LibTorch does to them in many passes over
// f32 copies. Others get no such loops. Free functions, from any thread.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <span>

namespace longspec::train {

// Whether this CPU has what the functions below are made of. REQUIRED of all of them.
inline bool HasRowKernels() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#else
  return false;
#endif
}

// What a row should predict: some tokens and their weights, and `soft` of softmax(scores). They add up to 1.
struct RowLabels {
  std::span<const int64_t> ids;
  std::span<const float> weights;         // as many
  const c10::BFloat16* scores = nullptr;  // as many as logits, or none
  float soft = 0.0F;
};
// The cross-entropy of a row, whose logits become the loss's gradient in them.
double CrossEntropyRow(std::span<c10::BFloat16> logits, const RowLabels& labels);

// The scores of a query, of which first .. end - 1 are of keys that it sees; the others count as none.
struct SeenScores {
  std::span<c10::BFloat16> scores;
  int64_t first = 0, end = 0;
};
// Scores become exp(score - the largest). Their sum, and the logarithm of that of exp(score): -inf of none.
struct ExpSum {
  float sum = 0.0F, log = 0.0F;
};
ExpSum ExpRow(const SeenScores& row);
// Scores become shares, exp(score - log_sum), and what is the loss's gradient in the shares becomes that in
// the scores: share * (gradient - mean), `mean` being the sum of share * gradient over all that a query sees.
void SoftmaxGradientRow(const SeenScores& row, float log_sum, float mean, c10::BFloat16* gradient);

}  // namespace longspec::train
