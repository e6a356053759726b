// SPDX-License-Identifier: Apache-2.0
//
// Rows of logits answer the same wherever they lie.
#include "sampling/logit_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/testing/floats.h"
#include "kernels/dispatch.h"
#include "sampling/logits_check.h"
#include "sampling/testing/guarded_logits.h"
#include "sampling/testing/values_of.h"
#include "sampling/top_logits.h"

namespace longspec {
namespace {

using testing::GuardedLogits;
using testing::kInfinity;
using testing::ValuesOf;

constexpr float kNever = -std::numeric_limits<float>::infinity();

TEST(LogitRows, AnswersAreThoseOfTheRow) {
  const std::vector<float> logits = {0, 3,   2, 1,       //
                                     9, 7,   8, kNever,  //
                                     1, NAN, 2, 3};
  GuardedLogits device;
  const LogitRows near(logits.data(), 3, 4), far = device.Write(near);
  for (const LogitRows& rows : {near, far}) {
    ASSERT_EQ(rows.size(), 3);
    EXPECT_EQ(rows[1].vocab(), 4);
    EXPECT_TRUE(rows[0].Check(0).ok());
    EXPECT_TRUE(rows[1].Check(0).ok());
    EXPECT_EQ(rows[2].Check(77).message(), CheckLogits(ValuesOf(near[2]), 77).message());
    EXPECT_FALSE(rows[2].Check(77).ok());
    std::vector<int32_t> best(4);
    EXPECT_EQ(rows[1].Best(best), 3);
    EXPECT_EQ(best[0], 0);
    EXPECT_EQ(best[1], 2);
    EXPECT_EQ(best[2], 1);
  }
}

TEST(LogitRows, TheRowItselfIsReadOnDemand) {
  const std::vector<float> logits = {0, 3, 2, 1, 9, 7, 8, kNever};
  GuardedLogits device;
  const LogitRows near(logits.data(), 2, 4), far = device.Write(near);
  std::vector<float> room;
  EXPECT_EQ(near[1].Read(&room).data(), logits.data() + 4);  // nothing is copied
  EXPECT_TRUE(room.empty());
  const std::span<const float> copy = far[1].Read(&room);
  EXPECT_EQ(copy.data(), room.data());
  ASSERT_EQ(copy.size(), 4U);
  EXPECT_EQ(std::memcmp(copy.data(), logits.data() + 4, 4 * sizeof(float)), 0);
}

TEST(LogitRows, AChoiceIsTheSamplersAfterThatHistory) {
  SamplingOptions options;
  options.seed = 3;
  options.temperature = 2;
  const auto sampler = Sampler::Create(options, 4);
  ASSERT_TRUE(sampler.ok());
  const std::vector<float> logits = {0, 1, 2, 1, 2, 1, 0, 1};
  GuardedLogits device;
  const LogitRows rows(logits.data(), 2, 4), far = device.Write(rows);
  Sampler::Scratch scratch;
  std::vector<int32_t> committed;
  for (int i = 0; i < 50; ++i) {
    const std::vector<int32_t> drafted(static_cast<size_t>(i % 3), 1);
    const TokenHistory history = {.committed = committed, .drafted = drafted};
    const int32_t token =
        sampler->Sample(ValuesOf(rows[i % 2]), history, committed.size() + drafted.size(), scratch);
    EXPECT_EQ(rows[i % 2].Choose(*sampler, history, scratch), token);
    EXPECT_EQ(far[i % 2].Choose(*sampler, history, scratch), token);
    committed.push_back(i % 4);
  }
}

TEST(LogitRows, ForbiddenTokensAreNotChosen) {
  SamplingOptions options;
  options.seed = 3;
  options.temperature = 2;
  constexpr int kVocab = 40;  // more than a word of the mask
  const auto sampler = Sampler::Create(options, kVocab);
  ASSERT_TRUE(sampler.ok());
  std::vector<float> logits(kVocab), allowed(kVocab, kNever);
  const std::vector<uint32_t> mask = {0x00300402U, 0x00000081U};
  for (int i = 0; i < kVocab; ++i) {
    logits[static_cast<size_t>(i)] = static_cast<float>(i * 7 % 11);
    if ((mask[static_cast<size_t>(i / 32)] >> (i % 32) & 1U) != 0)
      allowed[static_cast<size_t>(i)] = logits[static_cast<size_t>(i)];
  }
  GuardedLogits device;
  const LogitRows near(logits.data(), 1, kVocab), far = device.Write(near);
  Sampler::Scratch scratch;
  std::vector<int32_t> committed;
  for (int i = 0; i < 50; ++i) {
    const TokenHistory history = {.committed = committed, .drafted = {}};
    const int32_t token = sampler->Sample(allowed, history, committed.size(), scratch);
    EXPECT_EQ(near[0].Choose(*sampler, history, scratch, mask), token);
    EXPECT_EQ(far[0].Choose(*sampler, history, scratch, mask), token);
    committed.push_back(i % 4);
  }
  const std::vector<uint32_t> none(2);
  EXPECT_EQ(near[0].Choose(*sampler, {}, scratch, none), kNoToken);
  EXPECT_EQ(far[0].Choose(*sampler, {}, scratch, none), kNoToken);
}

TEST(LogitRows, TheBestComeWithLogitsAndAShare) {
  const std::vector<float> logits = {0,      3,         2,      1,  //
                                     1,      kInfinity, 2,      3,  //
                                     kNever, kNever,    kNever, kNever};
  GuardedLogits device;
  const LogitRows near(logits.data(), 3, 4), far = device.Write(near);
  for (const LogitRows& rows : {near, far}) {
    std::vector<int32_t> tokens(2);
    std::vector<float> best(2);
    float share = -1;
    EXPECT_EQ(rows[0].Best(tokens, best, &share), 2);
    EXPECT_EQ(tokens, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(best, (std::vector<float>{3, 2}));
    EXPECT_EQ(share, ShareOfLargest(ValuesOf(near[0]), 1));
    EXPECT_EQ(rows[1].Best(tokens, best, &share), 2);
    EXPECT_EQ(tokens[0], 1);
    EXPECT_EQ(share, 0.0F);
    share = -1;
    EXPECT_EQ(rows[2].Best(tokens, best, &share), 0);
    EXPECT_EQ(share, 0.0F);
  }
}

TEST(LogitRows, TheMostProbableAreThoseOfTheFirstLogits) {
  const std::vector<float> logits = {0, 3, 2, 1, 9};
  const std::vector<int32_t> names = {10, 11, 12, 13};
  const kernels::KernelTable& kernels = *kernels::Available().front();
  GuardedLogits device;
  const LogitRows near(logits.data(), 1, 5), far = device.Write(near);
  std::vector<TokenScore> expected, out;
  TopTokens(kernels, logits.data(), 4, 2, names, expected);
  ASSERT_EQ(expected.size(), 2U);
  for (const LogitRows& rows : {near, far}) {
    rows[0].MostProbable(kernels, 4, 2, names, out);
    EXPECT_TRUE(std::ranges::equal(out, expected, [](const TokenScore& a, const TokenScore& b) {
      return a.token == b.token && a.log_prob == b.log_prob;
    }));
  }
}

TEST(LogitRows, APartOfThemIsCountedFromItsFirst) {
  const std::vector<float> logits = {0, 1, 2, 3, 4, 5};
  const LogitRows rows(logits.data(), 3, 2), last = rows.From(1, 2);
  ASSERT_EQ(last.size(), 2);
  EXPECT_EQ(ValuesOf(last[1])[0], 4);
  EXPECT_EQ(rows.From(3, 0).size(), 0);
  EXPECT_DEATH(static_cast<void>(last[2]), "");
  EXPECT_DEATH(static_cast<void>(rows.From(2, 2)), "");
  GuardedLogits device;
  std::vector<float> room;
  EXPECT_EQ(device.Write(rows).From(1, 2)[1].Read(&room)[0], 4);
}

}  // namespace
}  // namespace longspec
