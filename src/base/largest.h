// SPDX-License-Identifier: Apache-2.0
//
// The first elements of a list in some order, without the others. Rows of logits have a search of their own
// (sampling/candidates.h), and a kernel where they are known to be numbers (top_k of kernels/ops.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace longspec {

// Keeps the n elements of `v` that come first in an order, in which no two are equal: the last of them last,
// the others anyhow.
template <typename T, typename Before>
void KeepFirst(std::vector<T>& v, size_t n, const Before& before) {
  if (n >= v.size()) return;
  const auto end = v.begin() + static_cast<std::ptrdiff_t>(n);
  if (n > 0) std::nth_element(v.begin(), end - 1, v.end(), before);
  v.erase(end, v.end());
}

// Keeps the n elements of `v` with the largest values, largest first, and of equal ones those that stood
// before the others.
template <typename T, typename Value = std::identity>
void KeepLargest(std::vector<T>& v, size_t n, const Value& value_of = {}) {
  std::ranges::stable_sort(v, std::ranges::greater(), value_of);
  if (n < v.size()) v.erase(v.begin() + static_cast<std::ptrdiff_t>(n), v.end());
}

}  // namespace longspec
