// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "verify/testing/rules.h"

namespace longspec::testing {
namespace {

// P(one child is accepted).
double Beta(Dense p, Dense q, double gamma) {
  LS_CHECK(p.size() == q.size());
  double beta = 0.0;
  for (size_t v = 0; v < p.size(); ++v) beta += std::min(q[v], p[v] / gamma);
  return std::min(1.0, beta);
}

double AnyAccepted(double beta, int n_children) { return 1.0 - std::pow(1.0 - beta, n_children); }

}  // namespace

double KSeqAcceptance(Dense p, Dense q, int n_children, double gamma) {
  return AnyAccepted(Beta(p, q, gamma), n_children);
}

double KSeqGamma(Dense p, Dense q, int n_children) {
  // Valid: no token is committed by acceptance more often than p allows, P_acc <= gamma * beta. True at
  // n_children.
  const auto valid = [&](double gamma) {
    const double beta = Beta(p, q, gamma);
    return AnyAccepted(beta, n_children) <= gamma * beta;
  };
  double low = 1.0, high = std::max(1, n_children);
  if (valid(low)) return low;
  while (high - low > 1e-12) {
    const double middle = 0.5 * (low + high);
    (valid(middle) ? high : low) = middle;
  }
  return high;
}

NodeVerdict VerifyKSeq(std::span<const int32_t> children, Dense p, Dense q, double gamma, Coin& coin) {
  for (size_t i = 0; i < children.size(); ++i) {
    const auto x = static_cast<size_t>(children[i]);
    LS_CHECK(x < q.size() && q[x] > 0.0);
    if (coin.Flip(p[x] / (gamma * q[x]))) return {static_cast<int>(i), children[i]};
  }
  if (children.empty()) return {-1, coin.Draw(p)};
  const double beta = Beta(p, q, gamma);
  const double scale = beta > 0.0 ? AnyAccepted(beta, static_cast<int>(children.size())) / beta : 0.0;
  std::vector<double> accepted(p.size());  // what acceptance already gives each token
  for (size_t v = 0; v < p.size(); ++v) accepted[v] = std::min(q[v], p[v] / gamma);
  return {-1, coin.Draw(Residual(p, accepted, 1.0, scale))};
}

}  // namespace longspec::testing
