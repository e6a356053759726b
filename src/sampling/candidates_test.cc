// SPDX-License-Identifier: Apache-2.0
//
// The first candidates of a row are those of a row that is sorted whole.
#include "sampling/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "base/testing/floats.h"

namespace longspec {
namespace {

using ::testing::ElementsAreArray;
using testing::kInfinity;

// By sorting all of it.
std::vector<Candidate> FirstOf(const std::vector<float>& logits, size_t k) {
  std::vector<Candidate> all;
  for (const float logit : logits) {
    all.emplace_back(std::isnan(logit) ? -kInfinity : logit, static_cast<int32_t>(all.size()));
  }
  std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) { return a.first > b.first; });
  all.resize(std::min(k, all.size()));
  return all;
}

// Rows of any length, with many equal logits, with NaN and minus infinity, and with the largest in any place.
TEST(TopCandidates, AreThoseOfASortedRow) {
  RngStream random{.seed = 7, .sequence = 0};
  uint64_t drawn = 0;
  for (const size_t n : {1U, 63U, 127U, 128U, 129U, 1000U, 4097U}) {
    for (const int kinds : {2, 50, 1 << 20}) {
      for (const bool rising : {false, true}) {
        std::vector<float> logits(n);
        for (size_t i = 0; i < n; ++i) {
          const auto x = static_cast<float>(random.Uniform(drawn++) * kinds);
          logits[i] = std::floor(x) + (rising ? static_cast<float>(i) : 0.0F);
          if (x < 0.05F * static_cast<float>(kinds)) logits[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
        }
        for (const int k : {1, 2, 40, 200}) {
          if (static_cast<size_t>(k) >= n) continue;  // then they are not sorted
          std::vector<Candidate> got;
          TopCandidates(logits, k, got);
          EXPECT_THAT(got, ElementsAreArray(FirstOf(logits, static_cast<size_t>(k)))) << n << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace longspec
