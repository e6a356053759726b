// SPDX-License-Identifier: Apache-2.0
//
// A loss over some tokens of the head stands for that over all of them.
#include "train/loss_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace longspec::train {
namespace {

using ::testing::AllOf;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

constexpr int64_t kTokens = 60, kWidth = 8;
constexpr int64_t kLabels[] = {3, 17, 20, 41, 59};

std::vector<int64_t> Values(const at::Tensor& t) {
  const at::Tensor flat = t.flatten().contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

struct HeadProblem {
  at::Tensor head, hidden;
  Targets targets;
};

// Four rows with two labels each, and the distribution of states beside them.
HeadProblem MakeHeadProblem() {
  at::manual_seed(5);
  HeadProblem p;
  p.head = at::randn({kTokens, kWidth});
  p.hidden = at::randn({4, kWidth});
  p.targets.ids = at::tensor({3, 59, 3, 17, 20, 3, 41, 17}, at::kLong).view({4, 2});
  p.targets.weights = at::full({4, 2}, 0.25);
  p.targets.states = at::randn({4, kWidth});
  p.targets.soft = at::full({4}, 0.5);
  return p;
}

TEST(LossHead, IsAllOfAHeadThatIsNotLarger) {
  for (const int64_t count : {int64_t{0}, kTokens, kTokens + 1}) {
    HeadProblem p = MakeHeadProblem();
    const at::Tensor ids = p.targets.ids;
    const LossHead drawn = DrawLossHead(p.head, count, 1, &p.targets);
    EXPECT_TRUE(drawn.weight.is_same(p.head));
    EXPECT_TRUE(drawn.RowsOf(p.head).is_same(p.head));
    EXPECT_TRUE(p.targets.ids.equal(ids));
  }
}

TEST(LossHead, HasTheLabelsAndOthersOfTheSeed) {
  std::vector<std::vector<int64_t>> seen;
  for (const uint64_t seed : {1, 1, 2}) {
    HeadProblem p = MakeHeadProblem();
    const at::Tensor ids = p.targets.ids;
    const LossHead drawn = DrawLossHead(p.head, 12, seed, &p.targets);
    seen.push_back(Values(drawn.tokens));
    ASSERT_EQ(seen.back().size(), 12U);
    EXPECT_TRUE(std::ranges::is_sorted(seen.back(), std::ranges::less_equal()));  // so none twice
    EXPECT_THAT(seen.back(), IsSupersetOf(kLabels));
    EXPECT_TRUE(drawn.tokens.index_select(0, p.targets.ids.flatten()).equal(ids.flatten()));
    EXPECT_TRUE(drawn.weight.equal(p.head.index_select(0, drawn.tokens)));
    EXPECT_TRUE(drawn.RowsOf(p.head * 2).equal(drawn.weight * 2));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_NE(seen[0], seen[2]);
}

TEST(LossHead, NeverLacksALabel) {
  HeadProblem p = MakeHeadProblem();
  EXPECT_THAT(Values(DrawLossHead(p.head, 2, 1, &p.targets).tokens), AllOf(SizeIs(6), IsSupersetOf(kLabels)));
}

// A text may have no label that the draft can choose.
TEST(LossHead, DoesWithoutLabels) {
  HeadProblem p = MakeHeadProblem();
  p.targets = p.targets.Slice(0, 0);
  EXPECT_EQ(DrawLossHead(p.head, 12, 1, &p.targets).tokens.numel(), 12);
  EXPECT_EQ(p.targets.ids.sizes(), (std::vector<int64_t>{0, 2}));
}

// Those that were drawn stand for all that were not labels, so sums over the head are right on average.
TEST(LossHead, StandsForTheWholeHead) {
  const HeadProblem whole = MakeHeadProblem();
  const at::Tensor all = at::matmul(whole.hidden, whole.head.t()).exp().sum(1);
  constexpr int kDraws = 2000;
  at::Tensor sum = at::zeros({4});
  for (int seed = 0; seed < kDraws; ++seed) {
    HeadProblem p = MakeHeadProblem();
    const LossHead drawn = DrawLossHead(p.head, 12, static_cast<uint64_t>(seed), &p.targets);
    EXPECT_NEAR(p.targets.log_counts.exp().sum().item<double>(), kTokens, 1e-3);
    sum += (at::matmul(p.hidden, drawn.weight.t()) + p.targets.log_counts).exp().sum(1);
  }
  EXPECT_TRUE(at::allclose(sum / kDraws, all, 0.1)) << sum / kDraws << all;
}

}  // namespace
}  // namespace longspec::train
