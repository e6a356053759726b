// SPDX-License-Identifier: Apache-2.0
//
// A prompt with a hole is read so that what stands before the hole comes last.
#include "draft_text/followed_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "draft_text/testing/letters.h"

namespace longspec {
namespace {

using testing::Letters;

constexpr HoleTokens kMarks = {.prefix = '<', .suffix = '>', .middle = '|'};

std::string Read(std::string_view text, const HoleTokens& marks = kMarks) {
  ReadingOrder order(marks);
  const std::vector<int32_t> tokens = Letters(text);
  const auto read = order.Of(tokens);
  return {read.begin(), read.end()};
}

TEST(ReadingOrder, WhatIsBeforeTheHoleComesLast) {
  EXPECT_EQ(Read("repo<before>behind|answer"), "repo>behind|<beforeanswer");
  EXPECT_EQ(Read("<before>|"), ">|<before");
}

TEST(ReadingOrder, OfASuffixThatIsFirstOnlyTheMarkMoves) {
  EXPECT_EQ(Read("repo>behind<before|answer"), "repo|>behind<beforeanswer");
}

TEST(ReadingOrder, TheLastHoleCounts) { EXPECT_EQ(Read("<a>b|c<d>e|f"), "<a>b|c>e|<df"); }

TEST(ReadingOrder, OtherTextsStayAsTheyAre) {
  for (const char* text : {"", "plain", "a|b", "<a|b", ">a|b", "<a>b"}) EXPECT_EQ(Read(text), text);
  EXPECT_EQ(Read("<a>b|c", {}), "<a>b|c");
  EXPECT_EQ(Read("<a>b|c", {.prefix = '<', .middle = '|'}), "<a>b|c");
}

}  // namespace
}  // namespace longspec
