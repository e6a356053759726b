// SPDX-License-Identifier: Apache-2.0
//
// Special tokens are found in a text from the left, the longest first.
#include "tokenizer/special_tokens.h"

#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

void ExpectMatch(const SpecialTokens::Match& match, size_t begin, size_t length, int32_t id) {
  EXPECT_EQ(match.begin, begin);
  EXPECT_EQ(match.length, length);
  EXPECT_EQ(match.id, id);
}

TEST(SpecialTokens, LeftmostThenLongest) {
  const SpecialTokens special({{"<a>", 1}, {"<a>b", 2}, {"<a>bcd", 3}, {"xx<", 4}});
  ExpectMatch(special.Find("..<a>.", 0), 2, 3, 1);
  ExpectMatch(special.Find("..<a>b", 0), 2, 4, 2);
  ExpectMatch(special.Find("..<a>bc", 0), 2, 4, 2);  // the longer one does not complete
  ExpectMatch(special.Find("..<a>bcd", 0), 2, 6, 3);
  ExpectMatch(special.Find("xx<a>b", 0), 0, 3, 4);  // further left wins over longer
  ExpectMatch(special.Find("xx<a>b", 1), 2, 4, 2);
}

// A beginning of a special token, or its rest, is none.
TEST(SpecialTokens, NoMatch) {
  const SpecialTokens special({{"<a>", 1}});
  EXPECT_EQ(special.Find("", 0).length, 0u);
  EXPECT_EQ(special.Find("<a", 0).length, 0u);
  EXPECT_EQ(special.Find("<<b>", 0).length, 0u);
  EXPECT_EQ(special.Find("<a>", 1).length, 0u);
  EXPECT_EQ(special.Find("<a>", 3).length, 0u);
  EXPECT_EQ(SpecialTokens({}).Find("<a>", 0).length, 0u);
}

TEST(SpecialTokens, EmptyTextsAreLeftOutAndTheFirstOfEqualsKept) {
  const SpecialTokens special({{"", 9}, {"<a>", 5}, {"<a>", 6}});
  ExpectMatch(special.Find("<a>", 0), 0, 3, 5);
  EXPECT_EQ(special.Find("bc", 0).length, 0u);
}

TEST(SpecialTokens, BytesAboveAscii) {
  const SpecialTokens special({{"<｜end｜>", 1}, {"\xFF", 2}, {"<z", 3}});
  ExpectMatch(special.Find("a<｜end｜>", 0), 1, 11, 1);
  ExpectMatch(special.Find("a\xFF", 0), 1, 1, 2);
  ExpectMatch(special.Find("<z", 0), 0, 2, 3);
}

TEST(TokenTypes, AllAreNormalWithoutTypes) {
  TokenizerSpec spec;
  spec.tokens = {"a", "b"};
  EXPECT_EQ(TypeOfToken(spec, 1), TokenType::kNormal);
  spec.token_types = {1, 4};
  EXPECT_EQ(TypeOfToken(spec, 1), TokenType::kUserDefined);
}

// A byte token is exactly <0x, two hexadecimal digits and >.
TEST(TokenTypes, ByteTokens) {
  EXPECT_EQ(ParseByteToken("<0x0A>"), 10);
  EXPECT_EQ(ParseByteToken("<0xff>"), 255);
  for (const char* text : {"", "<0x0A", "<0x0AB>", "<0x-1>", "<0xG0>", "<0x0G>", "0x0A>>", "<0x0A)"}) {
    EXPECT_EQ(ParseByteToken(text), -1) << text;
  }
}

}  // namespace
}  // namespace longspec
