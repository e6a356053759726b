// SPDX-License-Identifier: Apache-2.0
#include "sampling/top_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace longspec {

namespace {

constexpr int kBlockOfSum = 256;
constexpr int kStripes = 8;

bool AllFinite(const float* x, int n) {
  bool finite = true;
  for (int i = 0; i < n; ++i) finite &= std::abs(x[i]) <= std::numeric_limits<float>::max();
  return finite;
}

// log of the sum of exp(x - m)
double LogSum(const kernels::KernelTable& kernels, const float* x, int n, float m) {
  std::array<double, kStripes> sums{};
  std::array<float, kBlockOfSum> e;
  for (int begin = 0; begin < n; begin += kBlockOfSum) {
    const int count = std::min(kBlockOfSum, n - begin);
    for (int i = 0; i < count; ++i) e[static_cast<size_t>(i)] = x[begin + i] - m;
    std::fill(e.begin() + count, e.end(), -std::numeric_limits<float>::infinity());
    kernels.exp(e.data(), kBlockOfSum, e.data());
    for (size_t i = 0; i < kBlockOfSum; ++i) sums[i % kStripes] += static_cast<double>(e[i]);
  }
  double sum = 0.0;
  for (const double stripe : sums) sum += stripe;
  return std::log(sum);
}

}  // namespace

void TopTokens(const kernels::KernelTable& kernels, const float* logits, int n, int k,
               std::span<const int32_t> tokens, std::vector<TokenScore>& out) {
  out.clear();
  if (n <= 0 || k <= 0 || !AllFinite(logits, n)) return;
  k = std::min(k, n);
  std::vector<float> values(static_cast<size_t>(k));
  std::vector<int32_t> indices(values.size());
  kernels.top_k(logits, n, k, values.data(), indices.data());
  const double log_sum = LogSum(kernels, logits, n, values[0]);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto index = static_cast<size_t>(indices[i]);
    const double log_prob = static_cast<double>(values[i]) - static_cast<double>(values[0]) - log_sum;
    out.push_back({tokens.empty() ? indices[i] : tokens[index], std::min(log_prob, 0.0)});
  }
}

}  // namespace longspec
