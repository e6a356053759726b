// SPDX-License-Identifier: Apache-2.0
#include "eval/turn_order.h"

#include <utility>

#include "base/check.h"

namespace longspec {

size_t TurnOrder::Next(const std::vector<bool>& waiting, size_t i) {
  LS_CHECK(waiting.size() == n_ && i < n_);
  // The one that came after the last one least often, then the one that was in this place least often.
  const auto rank = [&](size_t method) {
    return std::pair(after_[last_ * n_ + method], at_[method * n_ + i]);
  };
  size_t next = n_;
  for (size_t method = 0; method < n_; ++method) {
    if (waiting[method] && (next == n_ || rank(method) < rank(next))) next = method;
  }
  LS_CHECK(next < n_);
  ++after_[last_ * n_ + next];
  ++at_[next * n_ + i];
  return last_ = next;
}

}  // namespace longspec
