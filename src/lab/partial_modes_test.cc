// SPDX-License-Identifier: Apache-2.0
//
// Which mode SpecPV (arXiv 2512.02337) is in at each step, against sequences that are written down here.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lab/specpv.h"

namespace longspec {
namespace {

struct Step {
  PartialMode mode;
  int buffered;  // tokens accepted since the last refresh; -1: there was none
  bool operator==(const Step&) const = default;
};

void PrintTo(const Step& step, std::ostream* out) {
  *out << "FPR"[static_cast<int>(step.mode)] << '(' << step.buffered << ')';
}

// From n committed tokens on, with so many drafts accepted by each verification.
std::vector<Step> Sequence(int n, int set_size, const std::vector<int>& accepted) {
  std::vector<Step> steps;
  int refreshed_at = -1;
  for (const int a : accepted) {
    const PartialMode mode = PaperMode(n, set_size, refreshed_at);
    steps.push_back({mode, refreshed_at < 0 ? -1 : n - refreshed_at});
    if (mode == PartialMode::kRefresh) refreshed_at = n;
    n += a + 1;
  }
  return steps;
}

constexpr PartialMode kF = PartialMode::kFull, kP = PartialMode::kPartial, kR = PartialMode::kRefresh;

TEST(PaperMode, IsTheGoldenSequence) {
  const std::vector<Step> expected = {{kR, -1}, {kP, 4}, {kP, 9}, {kP, 13}, {kP, 17}, {kR, 23},
                                      {kP, 3},  {kP, 4}, {kP, 5}, {kP, 12}, {kP, 20}, {kR, 24}};
  const std::vector<Step> golden = Sequence(5000, 2208, {3, 4, 3, 3, 5, 2, 0, 0, 6, 7, 3, 1});
  ASSERT_EQ(golden.size(), 12U);
  for (size_t i = 0; i < golden.size(); ++i) {
    EXPECT_EQ(golden[i].mode, expected[i].mode) << i;
    EXPECT_EQ(golden[i].buffered, expected[i].buffered) << i;
  }
}

// Twenty partial verifications after each refresh, if nothing is ever accepted.
TEST(PaperMode, WithNoDraftAcceptedTwentyFollowARefresh) {
  const std::vector<Step> steps = Sequence(3000, 2208, std::vector<int>(84, 0));
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].mode, i % 21 == 0 ? kR : kP) << i;
}

// Table of 2.1: from which length on, for budgets of 512, 2048, 4096 and 8192.
TEST(PaperMode, BeginsWhereTheTextDoesNotFitAnyMore) {
  for (const int budget : {512, 2048, 4096, 8192}) {
    const int set_size = 32 + budget + 128;
    EXPECT_EQ(PaperMode(set_size, set_size, -1), kF);
    EXPECT_EQ(PaperMode(set_size + 1, set_size, -1), kR);
  }
  const std::vector<Step> steps = Sequence(670, 672, {1, 0, 0, 2});
  EXPECT_EQ(steps, (std::vector<Step>{{kF, -1}, {kF, -1}, {kR, -1}, {kP, 1}}));
}

// The buffer is never fuller than the margin and one verification more (10.14).
TEST(PaperMode, TheBufferIsBounded) {
  std::vector<int> accepted;
  for (int i = 0; i < 5000; ++i) accepted.push_back(i * 7919 % 9);
  for (const Step& step : Sequence(9000, 672, accepted)) {
    EXPECT_LE(step.buffered, kPartialMargin + 9);
    if (step.mode == kP) {
      EXPECT_LE(step.buffered, kPartialMargin);
    }
  }
}

}  // namespace
}  // namespace longspec
