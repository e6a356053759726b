// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "longspec/stats.h"

namespace longspec {

double DistinctNgramShare(const std::vector<int32_t>& tokens, int n) {
  if (n < 1 || tokens.size() < static_cast<size_t>(n)) return 1.0;
  std::vector<const int32_t*> grams(tokens.size() - static_cast<size_t>(n) + 1);
  for (size_t i = 0; i < grams.size(); ++i) grams[i] = tokens.data() + i;
  std::sort(grams.begin(), grams.end(), [n](const int32_t* a, const int32_t* b) {
    return std::lexicographical_compare(a, a + n, b, b + n);
  });
  const auto last = std::unique(grams.begin(), grams.end(),
                                [n](const int32_t* a, const int32_t* b) { return std::equal(a, a + n, b); });
  return static_cast<double>(last - grams.begin()) / static_cast<double>(grams.size());
}

}  // namespace longspec
