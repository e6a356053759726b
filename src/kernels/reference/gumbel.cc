// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "base/dice.h"
#include "kernels/reference/reference.h"

namespace longspec::kernels::reference {

double GumbelKey(const GumbelArgs& a, int token) {
  const float logit = a.logits[token];
  const double x = logit == a.largest ? 0.0 : double{logit} - double{a.largest};
  return x / a.temperature + GumbelOf(DiceBits({a.dice[0], a.dice[1]}, token));
}

int GumbelArgmax(const GumbelArgs& a) {
  int best = 0;
  double largest = -std::numeric_limits<double>::infinity();
  for (int token = 0; token < a.n; ++token) {
    const double key = GumbelKey(a, token);
    if (!(key > largest)) continue;
    largest = key;
    best = token;
  }
  return best;
}

}  // namespace longspec::kernels::reference
