// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "longspec/stats.h"

namespace longspec {

double DistinctNgramShare(const std::vector<int32_t>& tokens, int n) {
  if (n < 1 || tokens.size() < static_cast<size_t>(n)) return 1.0;
  const size_t count = tokens.size() - static_cast<size_t>(n) + 1;
  std::vector<const int32_t*> grams(count);
  std::iota(grams.begin(), grams.end(), tokens.data());
  const auto before = [n](const int32_t* a, const int32_t* b) {
    return std::lexicographical_compare(a, a + n, b, b + n);
  };
  std::sort(grams.begin(), grams.end(), before);
  size_t distinct = 1;
  for (size_t i = 1; i < count; ++i) distinct += before(grams[i - 1], grams[i]) ? 1 : 0;
  return static_cast<double>(distinct) / static_cast<double>(count);
}

}  // namespace longspec
