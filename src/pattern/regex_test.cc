// SPDX-License-Identifier: Apache-2.0
//
// Regular expressions mean what all dialects agree on; the rest is refused by name.
#include "pattern/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace longspec {
namespace {

using ::testing::HasSubstr;

CodePoints SetOf(const std::string& pattern) {
  const auto regex = ParseRegex(pattern);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status().message();
  if (!regex.ok()) return {};
  EXPECT_EQ(regex->kind, Regex::Kind::kSet) << pattern;
  return regex->set;
}

TEST(CodePoints, AreAlwaysInOrderAndWithoutSurrogates) {
  const CodePoints set({{20, 30}, {5, 10}, {11, 12}, {25, 40}});
  EXPECT_EQ(set.ranges(), (std::vector<CodePointRange>{{5, 12}, {20, 40}}));
  EXPECT_EQ(set.Complement().Complement(), set);
  EXPECT_EQ(set.Intersection(CodePoints({{12, 20}})), CodePoints({{12, 12}, {20, 20}}));
  EXPECT_EQ(CodePoints::All().ranges(), (std::vector<CodePointRange>{{0, 0xD7FF}, {0xE000, 0x10FFFF}}));
  EXPECT_EQ(CodePoints().Complement(), CodePoints::All());
  EXPECT_TRUE(CodePoints::All().Complement().empty());
  EXPECT_TRUE(set.Contains(12));
  EXPECT_FALSE(set.Contains(13));
  EXPECT_FALSE(set.Contains(4));
}

TEST(Regex, ClassesAndEscapes) {
  EXPECT_EQ(SetOf("a"), CodePoints({{'a', 'a'}}));
  EXPECT_EQ(SetOf("é"), CodePoints({{0xE9, 0xE9}}));
  EXPECT_EQ(SetOf("\\ud83d\\ude00"), CodePoints({{0x1F600, 0x1F600}}));
  EXPECT_EQ(SetOf("\\u{1F600}"), SetOf("😀"));
  EXPECT_EQ(SetOf("\\x41"), SetOf("A"));
  EXPECT_EQ(SetOf("\\cJ"), SetOf("\\n"));
  EXPECT_EQ(SetOf("[a-c_-]"), CodePoints({{'a', 'c'}, {'_', '_'}, {'-', '-'}}));
  EXPECT_EQ(SetOf("[\\w-.]"), CodePoints({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {'-', '.'}}));
  EXPECT_EQ(SetOf("[^x]").Complement(), SetOf("x"));
  EXPECT_EQ(SetOf("(?i)[a-c]"), CodePoints({{'a', 'c'}, {'A', 'C'}}));
  EXPECT_EQ(SetOf("(?i)[^a-c]").Complement(), CodePoints({{'a', 'c'}, {'A', 'C'}}));
  EXPECT_EQ(SetOf("[\\b]"), SetOf("\\x08"));
  EXPECT_EQ(SetOf("\\."), CodePoints({{'.', '.'}}));
  EXPECT_EQ(SetOf("{"), CodePoints({{'{', '{'}}));
  EXPECT_FALSE(SetOf(".").Contains('\n'));
  EXPECT_TRUE(SetOf(".").Contains(0));
}

// Python's \d, \w and \s know other scripts, ECMA's do not.
TEST(Regex, ClassesAreWhatAllDialectsAgreeOn) {
  constexpr uint32_t kArabicThree = 0x663, kAcute = 0xE9, kDash = 0x2014, kByteOrderMark = 0xFEFF;
  EXPECT_EQ(SetOf("\\d"), CodePoints({{'0', '9'}}));
  EXPECT_FALSE(SetOf("\\D").Contains(kArabicThree));
  EXPECT_TRUE(SetOf("\\D").Contains(kAcute));
  EXPECT_FALSE(SetOf("\\W").Contains(kAcute));
  EXPECT_TRUE(SetOf("\\W").Contains(kDash));
  EXPECT_TRUE(SetOf("[^\\W]").Contains('a'));
  EXPECT_FALSE(SetOf("[^\\W]").Contains(kAcute));
  EXPECT_FALSE(SetOf("\\s").Contains(kByteOrderMark));
  EXPECT_FALSE(SetOf("\\S").Contains(kByteOrderMark));
  EXPECT_FALSE(SetOf("\\S").Contains(0x1C));
  EXPECT_TRUE(SetOf("\\S").Contains('"'));
}

TEST(Regex, MistakesAndWhatIsNotRegularAreNamed) {
  const auto expect = [](const std::string& pattern, StatusCode code, const std::string& message) {
    auto regex = ParseRegex(pattern);
    Status status = regex.status();
    if (regex.ok()) status = WholeText(*regex).status();
    EXPECT_EQ(status.code(), code) << pattern;
    EXPECT_THAT(status.message(), HasSubstr(message)) << pattern;
  };
  const auto wrong = StatusCode::kInvalidArgument, unsupported = StatusCode::kUnsupported;
  expect("(a", wrong, "has no ) for the ( at byte 0");
  expect("a)", wrong, "has a ) without a (");
  expect("[a", wrong, "has no ] for the [");
  expect("a**", wrong, "nothing to repeat at byte 2");
  expect("|*", wrong, "nothing to repeat");
  expect("^*", wrong, "repeats an anchor");
  expect("a{3,2}", wrong, "bounds are reversed");
  expect("[b-a]", wrong, "ends are reversed");
  expect("a\\", wrong, "ends with a backslash");
  expect("\\u12", wrong, "without its digits");
  expect("\\u{110000}", wrong, "beyond Unicode");
  expect("(?=a)", unsupported, "lookahead at byte 3");
  expect("(?<!a)", unsupported, "lookbehind");
  expect("(a)\\1", unsupported, "a reference to what a group matched");
  expect("\\bword", unsupported, "\\b at byte 2");
  expect("\\p{L}", unsupported, "\\p");
  expect("a{,3}", unsupported, "without its least number");
  expect("a++", unsupported, "gives nothing back");
  expect("[]a]", unsupported, "begins with ]");
  expect("\\ud83d", unsupported, "half a pair");
  expect("(?>a)", unsupported, "a group with ?>");
  expect("a^b", unsupported, "an anchor within the pattern");
  expect("x(a|$)", unsupported, "an anchor within the pattern");
  expect(std::string(200, '(') + std::string(200, ')'), unsupported, "groups within each other");
}

}  // namespace
}  // namespace longspec
