// SPDX-License-Identifier: Apache-2.0
//
// Who takes the next turn where several methods are timed in turns. A pass costs some per cent more after
// large ones, so what comes before is the same for all: each method comes equally often after each, itself
// included (last in one round and first in the next).
#pragma once

#include <cstddef>
#include <vector>

namespace longspec {

class TurnOrder {
 public:
  explicit TurnOrder(size_t n) : n_(n), last_(n), after_((n + 1) * n), at_(n * n) {}
  size_t size() const { return n_; }

  // One of those that wait, as the i-th of its round. REQUIRES: waiting.size() == size(), one of them true,
  // i < size().
  size_t Next(const std::vector<bool>& waiting, size_t i);

 private:
  const size_t n_;
  size_t last_;                  // n at the beginning
  std::vector<int> after_, at_;  // [last][method], [method][i]: how often
};

}  // namespace longspec
