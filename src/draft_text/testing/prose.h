// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace longspec::testing {

// Words of a Zipf-like law, with passages copied from before: what documents and answers look like.
inline std::vector<int32_t> Prose(size_t n) {
  std::mt19937 rng(7);
  std::vector<int32_t> text;
  while (text.size() < n) {
    if (text.size() > 200 && rng() % 40 == 0) {
      const size_t from = rng() % (text.size() - 100);
      for (size_t i = 0; i < 10 + rng() % 60; ++i) text.push_back(text[from + i]);
    }
    const double u = std::uniform_real_distribution<double>(0, 1)(rng);
    text.push_back(static_cast<int32_t>(std::pow(20000.0, u)));
  }
  text.resize(n);
  return text;
}

}  // namespace longspec::testing
