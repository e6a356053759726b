// SPDX-License-Identifier: Apache-2.0
#include "sampling/logit_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace longspec {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

TEST(LogitRows, AnswersAreThoseOfTheRow) {
  const std::vector<float> logits = {0, 3,   2, 1,       //
                                     9, 7,   8, kNever,  //
                                     1, NAN, 2, 3};
  const LogitRows rows(logits.data(), 3, 4);
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[1].vocab(), 4);
  EXPECT_EQ(rows[1].values().data(), logits.data() + 4);
  EXPECT_TRUE(rows[0].Check(0).ok());
  EXPECT_TRUE(rows[1].Check(0).ok());
  EXPECT_EQ(rows[2].Check(77).message(), CheckLogits(rows[2].values(), 77).message());
  EXPECT_FALSE(rows[2].Check(77).ok());
  std::vector<int32_t> best(4);
  EXPECT_EQ(rows[1].Best(best), 3);
  EXPECT_EQ(best[0], 0);
  EXPECT_EQ(best[1], 2);
  EXPECT_EQ(best[2], 1);
}

TEST(LogitRows, AChoiceIsTheSamplersAfterThatHistory) {
  SamplingOptions options;
  options.seed = 3;
  options.temperature = 2;
  const auto sampler = Sampler::Create(options, 4);
  ASSERT_TRUE(sampler.ok());
  const std::vector<float> logits = {0, 1, 2, 1, 2, 1, 0, 1};
  const LogitRows rows(logits.data(), 2, 4);
  Sampler::Scratch scratch;
  std::vector<int32_t> committed;
  for (int i = 0; i < 50; ++i) {
    const std::vector<int32_t> drafted(static_cast<size_t>(i % 3), 1);
    const TokenHistory history = {.committed = committed, .drafted = drafted};
    EXPECT_EQ(rows[i % 2].Choose(*sampler, history, scratch),
              sampler->Sample(rows[i % 2].values(), history, committed.size() + drafted.size(), scratch));
    committed.push_back(i % 4);
  }
}

TEST(LogitRows, APartOfThemIsCountedFromItsFirst) {
  const std::vector<float> logits = {0, 1, 2, 3, 4, 5};
  const LogitRows rows(logits.data(), 3, 2), last = rows.From(1, 2);
  ASSERT_EQ(last.size(), 2);
  EXPECT_EQ(last[1].values()[0], 4);
  EXPECT_EQ(rows.From(3, 0).size(), 0);
  EXPECT_DEATH(static_cast<void>(last[2]), "");
  EXPECT_DEATH(static_cast<void>(rows.From(2, 2)), "");
}

}  // namespace
}  // namespace longspec
