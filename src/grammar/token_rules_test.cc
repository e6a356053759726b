// SPDX-License-Identifier: Apache-2.0
//
// Rules on tokens beside a grammar: some only, none of these, no end yet.
#include "grammar/token_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/testing/toy_constraint.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ToyConstraint;

constexpr int kVocab = 40;  // more than a word of bits
constexpr int32_t kEnd = 39;

std::unique_ptr<Constraint> Make(TokenRules rules, std::unique_ptr<Constraint> inner = nullptr) {
  return MakeTokenConstraint(std::make_shared<const TokenRules>(std::move(rules)), kVocab, std::move(inner));
}

// What may come next by the mask; Accept says the same.
std::vector<int32_t> Next(Constraint& constraint) {
  std::vector<int32_t> tokens;
  const auto mask = *constraint.Mask();
  const std::vector<uint32_t> words(mask.begin(), mask.end());
  for (int32_t token = 0; token < kVocab; ++token) {
    const auto copy = constraint.Fork();
    EXPECT_EQ(IsAllowed(words, token), copy->Accept(token)) << token;
    if (IsAllowed(words, token)) tokens.push_back(token);
  }
  return tokens;
}

TEST(TokenRules, OnlyWhatIsAllowed) {
  const auto constraint = Make({.allowed = {3, 38, kEnd}, .ends = {kEnd}});
  EXPECT_THAT(Next(*constraint), ElementsAre(3, 38, kEnd));
  EXPECT_FALSE(constraint->Accept(kVocab));
  EXPECT_FALSE(constraint->Accept(-1));
  EXPECT_TRUE(constraint->Accept(kEnd));
  EXPECT_TRUE(constraint->ended());
}

TEST(TokenRules, WhatAnAnswerBeginsWith) {
  const auto constraint =
      Make({.begin = {7, kEnd, 8}, .allowed = {3, kEnd}, .ends = {kEnd}, .min_tokens = 1});
  EXPECT_THAT(constraint->Forced(9), ElementsAre(7, kEnd, 8));
  EXPECT_THAT(constraint->Forced(2), ElementsAre(7, kEnd));
  for (const int32_t token : {7, kEnd, 8}) {
    EXPECT_THAT(Next(*constraint), ElementsAre(token));
    EXPECT_FALSE(constraint->complete());
    EXPECT_TRUE(constraint->Accept(token));
    EXPECT_FALSE(constraint->ended());
  }
  EXPECT_THAT(Next(*constraint), ElementsAre(3));
  constraint->Accept(3);
  EXPECT_THAT(Next(*constraint), ElementsAre(3, kEnd));
  EXPECT_THAT(constraint->Forced(9), IsEmpty());
  constraint->Rollback(3);
  EXPECT_THAT(constraint->Forced(9), ElementsAre(kEnd, 8));
}

TEST(TokenRules, SequencesThatMayNotBe) {
  const auto constraint = Make({.allowed = {1, 2, 3}, .forbidden = {{3}, {1, 2}, {2, 2, 1}}});
  EXPECT_THAT(Next(*constraint), ElementsAre(1, 2));
  constraint->Accept(1);
  EXPECT_THAT(Next(*constraint), ElementsAre(1));
  constraint->Rollback(1);
  for (const int32_t token : {2, 2}) EXPECT_TRUE(constraint->Accept(token));
  EXPECT_THAT(Next(*constraint), ElementsAre(2));
}

TEST(TokenRules, NoEndBeforeSoManyTokens) {
  const auto constraint = Make({.allowed = {1, kEnd}, .ends = {kEnd}, .min_tokens = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Next(*constraint), ElementsAre(1));
    EXPECT_FALSE(constraint->complete());
    EXPECT_TRUE(constraint->Accept(1));
  }
  EXPECT_THAT(Next(*constraint), ElementsAre(1, kEnd));
  EXPECT_TRUE(constraint->complete());
  constraint->Rollback(1);
  EXPECT_THAT(Next(*constraint), ElementsAre(1));
}

// Counts from 1 on, and may end after 3.
std::unique_ptr<Constraint> Counting() {
  return std::make_unique<ToyConstraint>(
      [](std::span<const int32_t> answer, int32_t token) {
        const auto n = static_cast<int32_t>(answer.size());
        return token == n + 1 || (token == kEnd && n >= 3);
      },
      kVocab, kEnd);
}

TEST(TokenRules, BothMustAllowAToken) {
  const auto constraint = Make({.ends = {kEnd}, .min_tokens = 4}, Counting());
  EXPECT_THAT(constraint->Forced(9), ElementsAre(1, 2, 3));
  for (int32_t token = 1; token <= 3; ++token) {
    EXPECT_THAT(Next(*constraint), ElementsAre(token));
    EXPECT_TRUE(constraint->Accept(token));
  }
  EXPECT_THAT(Next(*constraint), ElementsAre(4));
  EXPECT_TRUE(constraint->Accept(4));
  EXPECT_THAT(Next(*constraint), ElementsAre(5, kEnd));
  const auto fork = constraint->Fork();
  EXPECT_TRUE(fork->Accept(kEnd));
  EXPECT_TRUE(fork->ended());
  EXPECT_FALSE(constraint->ended());
  constraint->Rollback(3);
  EXPECT_THAT(Next(*constraint), ElementsAre(2));
}

TEST(TokenRules, WhatIsForcedIsAllowed) {
  EXPECT_THAT(Make({.forbidden = {{2}}}, Counting())->Forced(9), ElementsAre(1));
  EXPECT_THAT(Make({.min_tokens = 1})->Forced(9), IsEmpty());
}

}  // namespace
}  // namespace longspec
