// SPDX-License-Identifier: Apache-2.0
//
// A text may end where a line is indented less than the first one.
#include "engine/indent_limit.h"

#include <gtest/gtest.h>

#include <string>

namespace longspec {
namespace {

// What is left of a text, and a bar behind it if it was ended, whatever it is cut into.
std::string Limited(const std::string& text, int n_indent) {
  std::string whole;
  for (size_t width = 1; width <= text.size(); ++width) {
    IndentLimit limit(n_indent);
    std::string left;
    for (size_t at = 0; at < text.size() && !limit.reached(); at += width)
      left += limit.Push(std::string_view(text).substr(at, width));
    if (limit.reached()) left += "|";
    if (width == 1) whole = left;
    EXPECT_EQ(left, whole) << "in pieces of " << width;
  }
  return whole;
}

TEST(IndentLimit, ALineThatIsIndentedLessEndsTheText) {
  EXPECT_EQ(Limited("a\n  b\n  c\n}\n", 2), "a\n  b\n  c\n|");
  EXPECT_EQ(Limited("a\n    b\n   c", 4), "a\n    b\n   |");
  EXPECT_EQ(Limited("a\n\t\tb\n\tc", 2), "a\n\t\tb\n\t|");
  EXPECT_EQ(Limited("a\n  b\n\n  c", 2), "a\n  b\n|");
}

TEST(IndentLimit, TheFirstLineAndWhiteSpaceAloneDoNot) {
  EXPECT_EQ(Limited("a b\n  c", 2), "a b\n  c");
  EXPECT_EQ(Limited("a\n ", 2), "a\n ");
  EXPECT_EQ(Limited("a\n", 2), "a\n");
}

TEST(IndentLimit, NothingIsWishedWithNone) {
  EXPECT_EQ(Limited("a\nb\n\nc", 0), "a\nb\n\nc");
  EXPECT_EQ(Limited("a\nb", -1), "a\nb");
}

}  // namespace
}  // namespace longspec
