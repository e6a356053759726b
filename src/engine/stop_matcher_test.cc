// SPDX-License-Identifier: Apache-2.0
//
// A text ends at the first stop string, however it comes in pieces, and nothing else is held back.
#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace longspec {
namespace {

struct Fed {
  std::string text;
  bool stopped;
  bool operator==(const Fed&) const = default;
};

// Pushes `text` in pieces of `n` bytes.
Fed Feed(const std::vector<std::string>& stops, const std::string& text, size_t n) {
  StopMatcher matcher(stops);
  std::string out;
  for (size_t i = 0; i < text.size() && !matcher.stopped(); i += n) out += matcher.Push(text.substr(i, n));
  const bool stopped = matcher.stopped();
  out += matcher.Finish();
  return {out, stopped};
}

TEST(StopMatcher, WithoutStopsTextPassesAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Push(""), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, HoldsBackWhatMayBeginAStop) {
  StopMatcher matcher({"\nUser:"});
  EXPECT_EQ(matcher.Push("Hello\n"), "Hello");
  EXPECT_EQ(matcher.Push("Us"), "");
  EXPECT_EQ(matcher.Push("eful"), "\nUseful");
  EXPECT_EQ(matcher.Push("\nUser"), "");
  EXPECT_EQ(matcher.Push(": hi"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, FinishGivesWhatWasHeldBack) {
  StopMatcher matcher({"###"});
  EXPECT_EQ(matcher.Push("a##"), "a");
  EXPECT_EQ(matcher.Finish(), "##");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, OverlappingPrefixesOfOneStop) {
  // A naive matcher that restarts after a mismatch misses this one.
  for (size_t n = 1; n <= 8; ++n) EXPECT_EQ(Feed({"aab"}, "aaaab!", n), (Fed{"aa", true})) << n;
  for (size_t n = 1; n <= 8; ++n) EXPECT_EQ(Feed({"abab"}, "abaabab", n), (Fed{"aba", true})) << n;
}

TEST(StopMatcher, FirstCompleteOccurrenceWinsHoweverTextIsCut) {
  const std::string text = "xxabcyy";
  for (size_t n = 1; n <= text.size(); ++n) {
    EXPECT_EQ(Feed({"abc", "b"}, text, n), (Fed{"xxa", true})) << n;
    EXPECT_EQ(Feed({"c", "abc"}, text, n), (Fed{"xx", true})) << n;  // they end together: the earlier begin
    EXPECT_EQ(Feed({"yyy"}, text, n), (Fed{text, false})) << n;
  }
}

TEST(StopMatcher, Utf8StopsAndText) {
  const std::string text = "naïve “end”…";
  // Pieces come as whole characters: cut only where one begins.
  for (const std::string stop : {"“end", "ï", "…", "”…"}) {
    StopMatcher matcher({stop});
    std::string out;
    for (size_t i = 0; i < text.size() && !matcher.stopped();) {
      size_t end = i + 1;
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
      out += matcher.Push(text.substr(i, end - i));
      i = end;
    }
    EXPECT_TRUE(matcher.stopped()) << stop;
    EXPECT_EQ(out, text.substr(0, text.find(stop)));
  }
}

TEST(StopMatcher, NeverCutsInsideACharacter) {
  // The stop is a lone continuation byte: it may not match the tail of "é" (C3 A9).
  EXPECT_EQ(Feed({"\xA9"}, "caf\xC3\xA9.", 7), (Fed{"caf\xC3\xA9.", false}));
  // A suffix that shares only continuation bytes with the stop is not held back.
  StopMatcher matcher({"\xA9z"});
  EXPECT_EQ(matcher.Push("\xC3\xA9"), "\xC3\xA9");
}

TEST(StopMatcher, StopAtTheVeryBeginning) { EXPECT_EQ(Feed({"<"}, "<end>", 2), (Fed{"", true})); }

TEST(StopMatcher, AControlTokenIsSeenByAStopThatNamesItInWhole) {
  const auto told = [](const std::string& stop) {
    StopMatcher matcher({stop});
    std::string text = matcher.Push("a");
    if (!matcher.stopped()) text += matcher.PushControl("<t>");
    if (!matcher.stopped()) text += matcher.Push("b<c");
    return Fed{text + matcher.Finish(), matcher.stopped()};
  };
  EXPECT_EQ(told("<t>"), (Fed{"a", true}));
  EXPECT_EQ(told("a<t>"), (Fed{"", true}));
  EXPECT_EQ(told("<t>b"), (Fed{"a", true}));
  EXPECT_EQ(told("a<t>b<"), (Fed{"", true}));
  EXPECT_EQ(told("a<t>c"), (Fed{"ab<c", false}));  // held back and let go without the name
  EXPECT_EQ(told("t"), (Fed{"ab<c", false}));
  EXPECT_EQ(told("a<"), (Fed{"ab<c", false}));
  EXPECT_EQ(told(">b"), (Fed{"ab<c", false}));
  EXPECT_EQ(told("<"), (Fed{"ab", true}));  // that of the text
  EXPECT_EQ(told("ab"), (Fed{"ab<c", false}));
}

TEST(StopMatcherDeathTest, EmptyStopIsABug) { EXPECT_DEATH(StopMatcher({""}), "empty"); }

}  // namespace
}  // namespace longspec
