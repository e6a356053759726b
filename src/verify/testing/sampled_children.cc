// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "verify/testing/rules.h"

namespace longspec::testing {
namespace {

void Normalise(std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(total > 0.0)) return;
  for (double& w : weights) w /= total;
}

// Tests child i, a draw from `q`, against what is left of the target in `t`. If it fails, `t` becomes the
// residual.
bool Accept(int32_t child, std::vector<double>& t, Dense q, Coin& coin) {
  const auto x = static_cast<size_t>(child);
  LS_CHECK(x < q.size() && q[x] > 0.0);
  if (coin.Flip(t[x] / q[x])) return true;
  t = Residual(t, q);
  Normalise(t);
  return false;
}

}  // namespace

NodeVerdict VerifyIndependent(std::span<const int32_t> children, Dense p, Dense q, Coin& coin) {
  std::vector<double> t(p.begin(), p.end());
  for (size_t i = 0; i < children.size(); ++i) {
    if (Accept(children[i], t, q, coin)) return {static_cast<int>(i), children[i]};
  }
  return {-1, coin.Draw(t)};
}

NodeVerdict VerifyWithoutReplacement(std::span<const int32_t> children, Dense p, Dense q, Coin& coin) {
  std::vector<double> t(p.begin(), p.end());
  std::vector<double> current(q.begin(), q.end());
  for (size_t i = 0; i < children.size(); ++i) {
    Normalise(current);
    if (Accept(children[i], t, current, coin)) return {static_cast<int>(i), children[i]};
    current[static_cast<size_t>(children[i])] = 0.0;
  }
  return {-1, coin.Draw(t)};
}

}  // namespace longspec::testing
