// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 is read, written, mended and counted as Unicode says, for every character there is.
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longspec {
namespace {

std::string Encoded(unsigned code_point) {
  const auto lead = [&](unsigned mark, int shift) { return static_cast<char>(mark | code_point >> shift); };
  const auto next = [&](int shift) { return static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) return {lead(0, 0)};
  if (code_point < 0x800) return {lead(0xC0, 6), next(0)};
  if (code_point < 0x10000) return {lead(0xE0, 12), next(6), next(0)};
  return {lead(0xF0, 18), next(12), next(6), next(0)};
}

TEST(Utf8, EveryCharacterIsOne) {
  for (unsigned code_point = 0; code_point <= 0x10FFFF; code_point += code_point < 0x3000 ? 1 : 61) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    const std::string bytes = Encoded(code_point);
    const Utf8Step step = ScanUtf8(bytes);
    ASSERT_EQ(step.kind, Utf8Kind::kCharacter) << code_point;
    ASSERT_EQ(step.length, bytes.size()) << code_point;
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const Utf8Step part = ScanUtf8(bytes.substr(0, cut));
      ASSERT_EQ(part.kind, Utf8Kind::kTruncated) << code_point;
      ASSERT_EQ(part.length, cut) << code_point;
      ASSERT_EQ(ScanUtf8(bytes.substr(0, cut) + "a").kind, Utf8Kind::kIllFormed) << code_point;
    }
  }
}

struct Case {
  std::string bytes;
  Utf8Kind kind;
  size_t length;
};

TEST(Utf8, EveryCharacterIsWrittenAndRead) {
  for (uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(code_point, &text);
    ASSERT_EQ(text, Encoded(code_point));
    const Utf8CodePoint read = DecodeUtf8(text + "x");
    ASSERT_TRUE(read.well_formed && read.value == code_point && read.length == text.size()) << code_point;
  }
  for (const char* wrong : {"\x80", "\xC3", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    const Utf8CodePoint read = DecodeUtf8(wrong);
    EXPECT_TRUE(!read.well_formed && read.value == 0xFFFD && read.length == 1);
  }
}

TEST(Utf8, IllFormedSubsequencesAreMaximal) {
  const std::vector<Case> cases = {
      {"\x80", Utf8Kind::kIllFormed, 1},
      {"\xBF\x80", Utf8Kind::kIllFormed, 1},
      {"\xC0\x80", Utf8Kind::kIllFormed, 1},
      {"\xC1\xBF", Utf8Kind::kIllFormed, 1},
      {"\xC2 ", Utf8Kind::kIllFormed, 1},
      {"\xE0\x9F\xBF", Utf8Kind::kIllFormed, 1},  // overlong
      {"\xE0\xA0 ", Utf8Kind::kIllFormed, 2},
      {"\xED\xA0\x80", Utf8Kind::kIllFormed, 1},  // a surrogate
      {"\xED\x9F\xBF", Utf8Kind::kCharacter, 3},
      {"\xE2\x82\xC2", Utf8Kind::kIllFormed, 2},
      {"\xF0\x8F\xBF\xBF", Utf8Kind::kIllFormed, 1},  // overlong
      {"\xF0\x90\x80", Utf8Kind::kTruncated, 3},
      {"\xF1\x80\x80\x41", Utf8Kind::kIllFormed, 3},
      {"\xF4\x8F\xBF\xBF", Utf8Kind::kCharacter, 4},
      {"\xF4\x90\x80\x80", Utf8Kind::kIllFormed, 1},  // above U+10FFFF
      {"\xF5\x80\x80\x80", Utf8Kind::kIllFormed, 1},
      {"\xFF", Utf8Kind::kIllFormed, 1},
  };
  for (const Case& c : cases) {
    const Utf8Step step = ScanUtf8(c.bytes);
    EXPECT_EQ(step.kind, c.kind) << ::testing::PrintToString(c.bytes);
    EXPECT_EQ(step.length, c.length) << ::testing::PrintToString(c.bytes);
  }
}

TEST(Utf8, ValidPrefixEndsAtTheFirstBadByte) {
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
  for (size_t before = 0; before < 40; ++before) {
    const std::string text = std::string(before, 'x') + "\xE2\x82\xAC" + std::string(before / 2, 'y');
    EXPECT_EQ(ValidUtf8Prefix(text), text.size());
    EXPECT_EQ(ValidUtf8Prefix(text + "\xFF" + text), text.size());
    EXPECT_EQ(ValidUtf8Prefix(text + "\xE2\x82"), text.size());
    EXPECT_TRUE(IsUtf8(text));
    EXPECT_FALSE(IsUtf8(text + "\xE2\x82"));
  }
}

TEST(Utf8, EachIllFormedSubsequenceBecomesOneReplacement) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(ValidUtf8(""), "");
  EXPECT_EQ(ValidUtf8("x\xC3\xBCx\xE2\x82\xACx"), "x\xC3\xBCx\xE2\x82\xACx");
  EXPECT_EQ(ValidUtf8("x\xFFx\xE2\x82x\xE2\x82\xE2"), "x" + bad + "x" + bad + "x" + bad + bad);
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), bad + bad + bad);
}

TEST(Utf8, CharactersAreCountedAndNotBytes) {
  EXPECT_EQ(CountCharacters(""), 0u);
  EXPECT_EQ(CountCharacters("a\xC3\xBC\xE2\x82\xAC\xF0\x9F\x98\x80"), 4u);
}

}  // namespace
}  // namespace longspec
