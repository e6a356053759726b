// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <utility>

#include "base/check.h"
#include "verify/testing/rules.h"

namespace longspec::testing {
namespace {

// Moves the probability of `token` out of p and returns it.
double Strike(std::vector<double>& p, int32_t token) {
  const auto t = static_cast<size_t>(token);
  LS_CHECK(t < p.size());
  return std::exchange(p[t], 0.0);
}

double Sum(const std::vector<double>& p) { return std::accumulate(p.begin(), p.end(), 0.0); }

}  // namespace

NodeVerdict VerifyInTurn(std::span<const int32_t> children, Dense p, Coin& coin) {
  std::vector<double> left(p.begin(), p.end());
  for (size_t i = 0; i < children.size(); ++i) {
    const double total = Sum(left);
    const double share = Strike(left, children[i]);
    // The last token that can occur is certain, whatever rounding says.
    const bool certain = share > 0.0 && Sum(left) <= 0.0;
    if (coin.Flip(certain ? 1.0 : share / total)) return {static_cast<int>(i), children[i]};
  }
  return {-1, coin.Draw(left)};
}

NodeVerdict VerifyOneCoin(std::span<const int32_t> children, Dense p, Coin& coin) {
  std::vector<double> left(p.begin(), p.end());
  std::vector<double> outcomes;  // each child, then the rest
  for (const int32_t child : children) outcomes.push_back(Strike(left, child));
  outcomes.push_back(Sum(left));
  const auto drawn = static_cast<size_t>(coin.Draw(outcomes));
  if (drawn < children.size()) return {static_cast<int>(drawn), children[drawn]};
  return {-1, coin.Draw(left)};
}

}  // namespace longspec::testing
