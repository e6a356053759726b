// SPDX-License-Identifier: Apache-2.0
#include "openai/likely_middles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspec::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Middles(const InfillText& text) {
  std::vector<std::string> middles;
  double sum = 0;
  for (const LikelyMiddle& middle : LikelyMiddles(text)) {
    middles.push_back(middle.text);
    EXPECT_GT(middle.chance, 0);
    sum += middle.chance;
  }
  EXPECT_LE(sum, 1);
  return middles;
}

TEST(LikelyMiddles, ANameThatIsHalfWrittenGoesOnAsElsewhere) {
  EXPECT_THAT(Middles({.prefix = "int row_count = 1;\n", .suffix = "\n}", .prompt = "return row_c"}),
              ElementsAre("ount = 1;"));
  EXPECT_THAT(Middles({.prefix = "return row_", .suffix = "\nint row_count;\n"}), ElementsAre("count;"));
  EXPECT_THAT(Middles({.prefix = "return row_", .chunks = {{.text = "f(row_count)\n"}}}),
              ElementsAre("count)"));
}

TEST(LikelyMiddles, TheMoreIsEqualTheLikelierAndThenTheNearer) {
  EXPECT_THAT(Middles({.prefix = "f(row_a);\ng(row_b);\nh(row_c);\n", .prompt = "f(row_"}),
              ElementsAre("a);", "c);", "b);"));
}

TEST(LikelyMiddles, NamesCountFromTheirBeginning) {
  EXPECT_THAT(Middles({.prefix = "arrow_count\n", .prompt = "row_"}), IsEmpty());
  EXPECT_THAT(Middles({.prefix = "row_count\n", .prompt = "arrow_"}), IsEmpty());
}

TEST(LikelyMiddles, AMiddleEndsWhereItMeetsWhatIsBehindTheHole) {
  const auto middles =
      LikelyMiddles({.prefix = "f(row_count, 1);\n", .suffix = ", 1);\n", .prompt = "f(row_"});
  ASSERT_EQ(middles.size(), 1U);
  EXPECT_EQ(middles[0].text, "count");
  EXPECT_TRUE(middles[0].ends);
  EXPECT_TRUE(LikelyMiddles({.prefix = "f(row_count);\nf(row_"})[0].ends);
  EXPECT_FALSE(LikelyMiddles({.prefix = "f(row_count);\nf(row_", .suffix = ", 2)"})[0].ends);
}

TEST(LikelyMiddles, NothingIsKnownOfAnEmptyLine) {
  EXPECT_THAT(Middles({.prefix = "a = 1\n", .suffix = "b = 2\n"}), IsEmpty());
  EXPECT_THAT(Middles({.prefix = "  a = 1\n  ", .suffix = "b = 2\n"}), IsEmpty());
  EXPECT_THAT(Middles({}), IsEmpty());
}

}  // namespace
}  // namespace longspec::openai
