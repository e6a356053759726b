// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "verify/testing/rules.h"

namespace longspec::testing {
namespace {

double Ratio(Dense p, Dense q, int32_t token) {
  const auto t = static_cast<size_t>(token);
  LS_CHECK(t < q.size() && q[t] > 0.0);
  return p[t] / q[t];
}

void CheckShapes(std::span<const int32_t> tokens, std::span<const Dense> p, std::span<const Dense> q) {
  LS_CHECK(p.size() == tokens.size() + 1 && q.size() == tokens.size());
}

// h_i of the paper: the probability that the block ends at i, given that it did not end later, when the
// tokens up to i have the joint ratio r.
double BlockEnd(double r, Dense p, Dense q) {
  if (r >= 1.0) return 1.0;
  double surplus = 0.0;
  for (size_t v = 0; v < p.size(); ++v) surplus += std::max(0.0, r * p[v] - q[v]);
  return surplus / (surplus + 1.0 - r);
}

}  // namespace

ChainVerdict VerifyChain(std::span<const int32_t> tokens, std::span<const Dense> p, std::span<const Dense> q,
                         Coin& coin) {
  CheckShapes(tokens, p, q);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!coin.Flip(Ratio(p[i], q[i], tokens[i]))) {
      return {static_cast<int>(i), coin.Draw(Residual(p[i], q[i]))};
    }
  }
  return {static_cast<int>(tokens.size()), coin.Draw(p.back())};
}

ChainVerdict VerifyBlock(std::span<const int32_t> tokens, std::span<const Dense> p, std::span<const Dense> q,
                         Coin& coin) {
  CheckShapes(tokens, p, q);
  const size_t n = tokens.size();
  std::vector<double> r = {1.0};  // r[i]: joint ratio of the first i tokens, cut to 1 at each step
  for (size_t i = 0; i < n; ++i) r.push_back(std::min(1.0, r[i] * Ratio(p[i], q[i], tokens[i])));
  if (coin.Flip(r[n])) return {static_cast<int>(n), coin.Draw(p[n])};
  // The largest i whose own coin succeeds; at 0 it always does.
  for (size_t i = n - 1;; --i) {
    if (i == 0 || coin.Flip(BlockEnd(r[i], p[i], q[i]))) {
      return {static_cast<int>(i), coin.Draw(Residual(p[i], q[i], r[i]))};
    }
  }
}

}  // namespace longspec::testing
