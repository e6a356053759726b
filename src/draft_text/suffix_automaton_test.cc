// SPDX-License-Identifier: Apache-2.0
//
// The automaton of a text's suffixes counts what a scan counts, in constant time a token.
#include "draft_text/suffix_automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string_view>

#include "base/clock.h"
#include "base/median.h"
#include "draft_text/testing/cold_cost.h"
#include "draft_text/testing/letters.h"
#include "draft_text/testing/prose.h"

namespace longspec {
namespace {

using testing::Prose;

using ::testing::IsEmpty;
using testing::Letters;
using Text = std::vector<int32_t>;

void AppendAll(SuffixAutomaton& automaton, const Text& text) {
  for (const int32_t token : text) automaton.Append(token);
}

int Occurrences(const Text& text, const Text& string) {
  int n = 0;
  for (size_t i = 0; i + string.size() <= text.size(); ++i) {
    n += std::equal(string.begin(), string.end(), text.begin() + static_cast<std::ptrdiff_t>(i)) ? 1 : 0;
  }
  return n;
}

int LongestMatchByScan(const Text& text, int limit) {
  for (int n = std::min(limit, static_cast<int>(text.size())); n > 0; --n) {
    if (Occurrences(text, Text(text.end() - n, text.end())) > 1) return n;
  }
  return 0;
}

// Compares a context's count and continuations with a scan, and those of its continuations. `string` is the
// context's.
void ExpectScanned(const SuffixAutomaton& automaton, const Text& text, const SuffixContext& context,
                   const Text& string, int levels) {
  ASSERT_EQ(static_cast<int>(string.size()), context.length);
  ASSERT_EQ(automaton.Count(context), Occurrences(text, string));
  std::map<int32_t, int> followed;
  Text longer = string;
  longer.push_back(0);
  for (int32_t token = 0; token < 5; ++token) {
    longer.back() = token;
    if (const int n = Occurrences(text, longer)) followed[token] = n;
  }
  if (followed.empty()) return;  // continued as a shorter one
  std::vector<Continuation> found;
  automaton.Continuations(context, 64, found);
  ASSERT_EQ(found.size(), followed.size());
  double before = 1;
  for (const Continuation& c : found) {
    EXPECT_LE(c.share, before);
    before = c.share;
    ASSERT_DOUBLE_EQ(c.share, static_cast<double>(followed.at(c.token)) / Occurrences(text, string));
    if (levels == 0) continue;
    longer.back() = c.token;
    // The index may know a longer context by the same places.
    const Text last(longer.end() - std::min<std::ptrdiff_t>(c.context.length, std::ssize(longer)),
                    longer.end());
    if (static_cast<int>(last.size()) < c.context.length) continue;
    ExpectScanned(automaton, text, c.context, last, levels - 1);
  }
}

TEST(SuffixAutomaton, CountsWhatAScanCounts) {
  std::mt19937 rng(11);
  for (int round = 0; round < 60; ++round) {
    const unsigned letters = 1 + static_cast<unsigned>(round % 4);
    const int max_context = 1 + round % 7;
    SuffixAutomaton automaton(max_context);
    Text text;
    for (int n = 0; n < 70; ++n) {
      text.push_back(static_cast<int32_t>(rng() % letters));
      automaton.Append(text.back());
      SuffixContext context = automaton.LongestMatch();
      ASSERT_EQ(context.length, LongestMatchByScan(text, max_context));
      int previous = context.length + 1;
      for (; context.length > 0; context = automaton.Shorter(context)) {
        ASSERT_LT(context.length, previous);
        previous = context.length;
        ExpectScanned(automaton, text, context, Text(text.end() - context.length, text.end()), 2);
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(automaton.size(), 70);
  }
}

TEST(SuffixAutomaton, NothingFollowsNothing) {
  SuffixAutomaton automaton(8);
  EXPECT_EQ(automaton.LongestMatch().length, 0);
  AppendAll(automaton, Letters("abc"));
  EXPECT_EQ(automaton.LongestMatch().length, 0);
  std::vector<Continuation> found(3);
  automaton.Continuations(automaton.LongestMatch(), 8, found);
  EXPECT_THAT(found, IsEmpty());
  EXPECT_EQ(automaton.Shorter(automaton.LongestMatch()).length, 0);
  EXPECT_EQ(automaton.Count(automaton.LongestMatch()), 3);
  automaton.Append('a');
  EXPECT_EQ(automaton.LongestMatch().length, 1);
  automaton.Clear();
  EXPECT_EQ(automaton.size(), 0);
  EXPECT_EQ(automaton.LongestMatch().length, 0);
  AppendAll(automaton, Letters("xyxy"));
  EXPECT_EQ(automaton.LongestMatch().length, 2);
}

TEST(SuffixAutomaton, AContextAtTheEndIsContinuedAsAShorterOne) {
  SuffixAutomaton automaton(8);
  AppendAll(automaton, Letters("abcabc"));
  SuffixContext context = automaton.LongestMatch();
  Text read;
  std::vector<Continuation> found;
  for (int i = 0; i < 10; ++i) {
    automaton.Continuations(context, 1, found);
    ASSERT_EQ(found.size(), 1U) << i;
    read.push_back(found[0].token);
    context = found[0].context;
  }
  EXPECT_EQ(read, Letters("abcabcabca"));
}

TEST(SuffixAutomaton, OfManyContinuationsTheRecentOnesAreConsidered) {
  SuffixAutomaton automaton(4);
  // 0 is followed by each of 1..500 once, by 7 often.
  for (int32_t token = 1; token <= 500; ++token) {
    automaton.Append(0);
    automaton.Append(token);
    if (token % 50 == 0) AppendAll(automaton, {0, 7});
  }
  AppendAll(automaton, {0, 3, 0});
  std::vector<Continuation> found;
  SuffixContext context = automaton.LongestMatch();
  while (context.length > 1) context = automaton.Shorter(context);
  ASSERT_EQ(context.length, 1);
  automaton.Continuations(context, 200, found);
  EXPECT_EQ(found.size(), 64U);
  EXPECT_EQ(found[0].token, 7);
  EXPECT_EQ(found[1].token, 3);
  automaton.Continuations(context, 2, found);
  EXPECT_EQ(found.size(), 2U);
}

TEST(SuffixAutomaton, LooksAtAsManyContinuationsAsItWasTold) {
  SuffixAutomaton automaton(4, 5);
  for (int32_t token = 1; token <= 20; ++token) AppendAll(automaton, {0, token});
  automaton.Append(0);
  std::vector<Continuation> found;
  automaton.Continuations(automaton.LongestMatch(), 64, found);
  ASSERT_EQ(found.size(), 5U);
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(found[static_cast<size_t>(i)].token, 20 - i);
}

// What the drafter does for a committed token: it is appended, and the likeliest path after it looked up.
void AppendAndPropose(SuffixAutomaton& automaton, int32_t token) {
  automaton.Append(token);
  SuffixContext context = automaton.LongestMatch();
  std::vector<Continuation> found;
  for (int depth = 0; depth < 8; ++depth) {
    automaton.Continuations(context, 4, found);
    if (found.empty()) return;
    context = found[0].context;
  }
}

struct AutomatonCost {
  double append_steps, steps, nanoseconds, bytes;
};

// Of the last 1000 tokens, the text before them being there already.
AutomatonCost CostPerToken(const Text& text) {
  constexpr size_t kMeasured = 1000;
  SuffixAutomaton appended(24), proposing(24);
  for (size_t i = 0; i + kMeasured < text.size(); ++i) {
    appended.Append(text[i]);
    proposing.Append(text[i]);
  }
  const uint64_t append_steps = appended.steps(), steps = proposing.steps();
  std::vector<double> ms;
  for (size_t i = text.size() - kMeasured; i < text.size(); ++i) {
    appended.Append(text[i]);
    const double start = NowMs();
    AppendAndPropose(proposing, text[i]);
    ms.push_back(NowMs() - start);
  }
  const auto n = static_cast<double>(kMeasured);
  return {.append_steps = static_cast<double>(appended.steps() - append_steps) / n,
          .steps = static_cast<double>(proposing.steps() - steps) / n,
          .nanoseconds = 1e6 * Median(ms),
          .bytes = static_cast<double>(proposing.bytes()) / static_cast<double>(text.size())};
}

TEST(SuffixAutomaton, ATokenCostsTheSameInALongText) {
  const auto cycle = [](size_t n, size_t period) {
    Text text(n);
    for (size_t i = 0; i < n; ++i) text[i] = static_cast<int32_t>(i % period);
    return text;
  };
  const std::pair<const char*, std::function<Text(size_t)>> kinds[] = {
      {"prose", Prose},
      {"one token", [&](size_t n) { return cycle(n, 1); }},
      {"a period of 30", [&](size_t n) { return cycle(n, 30); }},
      {"all different", [&](size_t n) { return cycle(n, n); }},
  };
  for (const auto& [name, make] : kinds) {
    const AutomatonCost small = CostPerToken(make(2000)), large = CostPerToken(make(101000));
    for (const auto& [length, cost] : {std::pair("1K", small), std::pair("100K", large)}) {
      std::printf("%-15s a token after %s: %.1f steps to append, %.1f with a proposal, %.0f ns, %.0f bytes\n",
                  name, length, cost.append_steps, cost.steps, cost.nanoseconds, cost.bytes);
    }
    EXPECT_LE(large.append_steps, 2 * small.append_steps) << name;
    EXPECT_LE(large.steps, 2 * small.steps) << name;
    EXPECT_LE(large.bytes, 2 * small.bytes) << name;
  }
}

// Beside a model the memory is cold, which hides most of what a larger index costs.
TEST(SuffixAutomaton, BesideAModelATokenCostsAboutTheSameInALongText) {
  if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP();
  struct Growing {
    explicit Growing(size_t n) : text(Prose(n + testing::kMostColdCalls)), next(n) {
      AppendAll(automaton, {text.begin(), text.begin() + static_cast<ptrdiff_t>(n)});
    }
    void operator()() { automaton.Append(text[next++]); }
    Text text;
    size_t next;
    SuffixAutomaton automaton{24};
  };
  Growing small(1000), large(100000);
  EXPECT_LT(testing::LeastColdRatio(std::ref(large), std::ref(small), 2.0), 2.0);
}

TEST(SuffixAutomatonDeathTest, TokensAreNotNegative) {
  SuffixAutomaton automaton(2);
  EXPECT_DEATH(automaton.Append(-1), "token >= 0");
}

}  // namespace
}  // namespace longspec
