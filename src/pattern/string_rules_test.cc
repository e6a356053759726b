// SPDX-License-Identifier: Apache-2.0
//
// Patterns, lengths and formats of strings hold together, and hostile ones end.
#include "pattern/string_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/counter_rng.h"
#include "pattern/formats.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

std::optional<StringAutomaton> Compiled(const StringRules& rules) {
  PatternWork work;
  auto automaton = CompileStringRules(rules, work);
  EXPECT_TRUE(automaton.ok()) << StringRulesLine(rules) << ": " << automaton.status().message();
  if (!automaton.ok()) return std::nullopt;
  return *std::move(automaton);
}
bool Fits(const StringRules& rules, const std::string& text) {
  const auto automaton = Compiled(rules);
  return automaton && automaton->Describes(text);
}
Status Refusal(const StringRules& rules) {
  PatternWork work;
  return CompileStringRules(rules, work).status();
}

// Walks the bytes as a grammar does: nothing is entered from where no end can be reached.
struct Walk {
  const StringAutomaton& automaton;
  int32_t state = 0;
  int64_t length = 0;

  bool Take(uint8_t byte) {
    const int64_t next_length = length + (automaton.BeginsCharacter(state) ? 1 : 0);
    for (const ByteEdge& edge : automaton.edges()[static_cast<size_t>(state)]) {
      if (byte < edge.first || byte > edge.last || !automaton.CanEnd(edge.target, next_length)) continue;
      state = edge.target;
      length = next_length;
      return true;
    }
    return false;
  }
  bool MayEnd() const { return automaton.Accepts(state) && automaton.IsRightLength(length); }
};
bool Reads(const StringRules& rules, const std::string& bytes) {
  const auto automaton = Compiled(rules);
  Walk walk{*automaton};
  for (const char c : bytes) {
    if (!walk.Take(static_cast<uint8_t>(c))) return false;
  }
  return walk.MayEnd();
}

TEST(StringRules, PatternsWithAnchorsOnOneSideGoOn) {
  EXPECT_TRUE(Fits({.patterns = {"^ab$"}}, "ab"));
  EXPECT_FALSE(Fits({.patterns = {"^ab$"}}, "abc"));
  EXPECT_TRUE(Fits({.patterns = {"ab"}}, "ab"));
  EXPECT_FALSE(Fits({.patterns = {"ab"}}, "xab"));
  EXPECT_TRUE(Fits({.patterns = {"^ab"}}, "abc\n"));
  EXPECT_TRUE(Fits({.patterns = {"ab$"}}, "xab"));
  EXPECT_FALSE(Fits({.patterns = {"ab$"}}, "abx"));
  EXPECT_TRUE(Fits({.patterns = {"^a|b$"}}, "ax"));
  EXPECT_TRUE(Fits({.patterns = {"^a|b$"}}, "xb"));
  EXPECT_FALSE(Fits({.patterns = {"^a|b$"}}, "xbx"));
  EXPECT_TRUE(Fits({.patterns = {"(^a|b$)|c"}}, "xcx"));
  EXPECT_TRUE(Fits({.patterns = {"^a\\$"}}, "a$b"));
  EXPECT_TRUE(Fits({.patterns = {"^$"}}, ""));
  EXPECT_FALSE(Fits({.patterns = {"^$"}}, "a"));
}

TEST(StringRules, BareTextsMatchWhollyAndStandAsTheyAre) {
  const auto fits = [](const char* pattern, const std::string& text) {
    const StringRules rules = {.patterns = {pattern}, .full_match = true, .bare = true};
    EXPECT_EQ(Fits(rules, text), Reads(rules, text)) << pattern;
    return Reads(rules, text);
  };
  for (const char* pattern : {"ab", "^ab", "ab$", "^ab$", "^ab|x$"}) {
    EXPECT_TRUE(fits(pattern, "ab"));
    EXPECT_FALSE(fits(pattern, "xab")) << pattern;
    EXPECT_FALSE(fits(pattern, "abx")) << pattern;
    EXPECT_FALSE(fits(pattern, "")) << pattern;
  }
  EXPECT_TRUE(fits("^a|b$", "b"));
  EXPECT_FALSE(fits("^a|b$", "ab"));
  EXPECT_TRUE(fits("^[^x]*$", "\"\\\n\té\xF0\x9F\x98\x80"));
  EXPECT_FALSE(fits("^[^x]*$", "\xED\xA0\x80"));  // half a pair of surrogates
  EXPECT_FALSE(fits("\"", "\\\""));
  for (const int most : {5, 128, 129, 1000}) {
    const std::string pattern = "[a-z]{2," + std::to_string(most) + "}";
    EXPECT_TRUE(fits(pattern.c_str(), std::string(static_cast<size_t>(most), 'a')));
    EXPECT_FALSE(fits(pattern.c_str(), std::string(static_cast<size_t>(most) + 1, 'a')));
    EXPECT_FALSE(fits(pattern.c_str(), "a"));
  }
  EXPECT_EQ(Refusal({.patterns = {"(^a)+"}, .full_match = true}).code(), StatusCode::kUnsupported);
}

TEST(StringRules, APartMayBeForbidden) {
  for (const char* text : {"b", "b<", "b</", "b</a", "b<</a <</</a</>", "</b>", "<a>b"})
    EXPECT_TRUE(Reads({.max_length = 20, .bare = true, .without = "</a>"}, text)) << text;
  for (const char* text : {"</a>", "b</a>", "<</a>b", "</</a>", "b</a</a>"})
    EXPECT_FALSE(Reads({.bare = true, .without = "</a>"}, text)) << text;
  EXPECT_TRUE(Reads({.patterns = {"^b"}, .bare = true, .without = "</a>"}, "b</a"));
  EXPECT_FALSE(Reads({.patterns = {"^b"}, .bare = true, .without = "</a>"}, "b</a>"));
  EXPECT_FALSE(Reads({.patterns = {"^b"}, .bare = true, .without = "</a>"}, "c"));
}

TEST(StringRules, AllThatIsSaidIsKeptAtOnce) {
  const StringRules date = {.patterns = {"^20"}, .format = "date", .max_length = 30};
  EXPECT_TRUE(Fits(date, "2026-02-28"));
  EXPECT_FALSE(Fits(date, "2026-02-30"));
  EXPECT_FALSE(Fits(date, "1926-02-28"));
  EXPECT_THAT(Refusal({.format = "date", .max_length = 9}).message(), HasSubstr("no text could satisfy it"));
  const StringRules both = {.patterns = {"^[a-z]*$", "^.*x.*$"}, .min_length = 2, .max_length = 3};
  EXPECT_TRUE(Fits(both, "ax"));
  EXPECT_FALSE(Fits(both, "x"));
  EXPECT_FALSE(Fits(both, "abc"));
  EXPECT_FALSE(Fits(both, "abcx"));
  EXPECT_TRUE(Fits({.others = {"a", "ab", ""}}, "abc"));
  EXPECT_FALSE(Fits({.others = {"a", "ab", ""}}, "ab"));
  EXPECT_FALSE(Fits({.others = {"a", "ab", ""}}, ""));
}

TEST(StringRules, LengthsAreOfCharacters) {
  const StringRules rules = {.min_length = 2, .max_length = 3};
  EXPECT_FALSE(Fits(rules, "é"));
  EXPECT_TRUE(Fits(rules, "é😀"));
  EXPECT_TRUE(Fits(rules, "\n\"\\"));
  EXPECT_FALSE(Fits(rules, "abcd"));
  EXPECT_TRUE(Reads(rules, R"(\u00e9\ud83d\uDE00)"));
  EXPECT_TRUE(Reads(rules, R"(\/\n\b)"));
  EXPECT_FALSE(Reads(rules, R"(\/\n\ba)"));
  EXPECT_FALSE(Reads(rules, R"(\ud83da)"));
  EXPECT_FALSE(Reads(rules, R"(\ude00a)"));
  EXPECT_FALSE(Reads(rules, "a\na"));
  EXPECT_FALSE(Reads(rules, "a\"a"));
  EXPECT_FALSE(Reads(rules,
                     "a\x1F"
                     "a"));
  EXPECT_FALSE(Reads(rules, "a\xC0\x80"));
  EXPECT_FALSE(Reads(rules, "a\xED\xA0\x80"));
  EXPECT_FALSE(Reads(rules, "a\xF4\x90\x80\x80"));
}

TEST(StringRules, LargeBoundsCostNothing) {
  for (const char* pattern :
       {"^.{0,524288}$", "^[^x]{0,524288}$", "^[a-z][a-z0-9]{0,524287}$", "^(ab){0,262144}$"}) {
    const auto automaton = Compiled({.patterns = {pattern}});
    ASSERT_TRUE(automaton);
    EXPECT_LT(automaton->edges().size(), 20U) << pattern;
    EXPECT_TRUE(automaton->IsRightLength(524288)) << pattern;
    EXPECT_FALSE(automaton->IsRightLength(524289)) << pattern;
  }
  EXPECT_FALSE(Fits({.patterns = {"^[a-z][a-z0-9]{20,}$"}}, std::string(20, 'a')));
  EXPECT_TRUE(Fits({.patterns = {"^[a-z][a-z0-9]{20,}$"}}, std::string(21, 'a')));
  EXPECT_TRUE(Fits({.patterns = {"^x[0-9]{200}(,|;)$"}}, "x" + std::string(200, '1') + ","));
  EXPECT_FALSE(Fits({.patterns = {"^x[0-9]{200}(,|;)$"}}, "x" + std::string(199, '1') + ","));
  EXPECT_FALSE(Compiled({.max_length = int64_t{1} << 53})->HasLengths());
  EXPECT_EQ(Refusal({.min_length = int64_t{1} << 53}).code(), StatusCode::kUnsupported);
}

// What was begun can be ended in time: (ab)* has no text of three characters.
TEST(StringRules, NoWayLeadsWhereNoEndIs) {
  EXPECT_THAT(Refusal({.patterns = {"^(ab)*$"}, .min_length = 3, .max_length = 3}).message(),
              HasSubstr("no text could satisfy it"));
  const RngStream rng{.seed = 5, .purpose = RngPurpose::kTest};
  uint64_t answer = 0;
  for (const StringRules& rules :
       std::vector<StringRules>{{.patterns = {"^(ab)*$"}, .min_length = 3, .max_length = 5},
                                {.patterns = {"^[a-z]+@[a-z]+\\.[a-z]{2,3}$"}, .max_length = 8},
                                {.patterns = {"^(ab?c)+$"}, .min_length = 7, .max_length = 7},
                                {.patterns = {"^a?b?c?$"}, .min_length = 2},
                                {.patterns = {"^(aaa|bbbbb)*$"}, .min_length = 7, .max_length = 9},
                                {.patterns = {"^(aaa|bbbbb)*$"}, .min_length = 700, .max_length = 701},
                                {.patterns = {"^(a|b)*a(a|b){20}$"}, .max_length = 22},
                                {.format = "ipv6", .max_length = 5},
                                {.format = "uuid", .min_length = 1},
                                {.min_length = 129, .max_length = 129}}) {
    const auto automaton = Compiled(rules);
    ASSERT_TRUE(automaton);
    for (int i = 0; i < 20; ++i) {
      Walk walk{*automaton};
      std::string bytes;
      uint32_t step = 0;
      ++answer;
      while (step < 5000) {
        std::vector<uint8_t> possible;
        for (int byte = 0; byte < 256; ++byte) {
          Walk next = walk;
          if (next.Take(static_cast<uint8_t>(byte))) possible.push_back(static_cast<uint8_t>(byte));
        }
        const auto draw =
            static_cast<size_t>(rng.Uniform(answer, step++) * static_cast<double>(possible.size()));
        if (possible.empty() || (walk.MayEnd() && step % 3 == 0)) break;
        walk.Take(possible[draw]);
        bytes += static_cast<char>(possible[draw]);
      }
      // An automaton that is in several states at once is walked in one of them here.
      EXPECT_TRUE(walk.MayEnd()) << StringRulesLine(rules) << ": " << bytes;
    }
  }
}

TEST(StringRules, FreeCharactersAreThoseThatNoBoundForbids) {
  const auto any = Compiled({.max_length = 10});
  EXPECT_EQ(any->FreeCharacters(0), 10);
  EXPECT_EQ(any->FreeCharacters(7), 3);
  const auto mail = Compiled({.patterns = {"^[a-z]+@[a-z]+$"}, .max_length = 10});
  EXPECT_EQ(mail->FreeCharacters(0), 7);  // a@a may still have to come
  EXPECT_GT(Compiled({.min_length = 5})->FreeCharacters(0), 1000);
  EXPECT_EQ(Compiled({.patterns = {"^a?b?$"}, .min_length = 1})->FreeCharacters(0), 0);
  EXPECT_EQ(Compiled({.patterns = {"^(ab)*$"}, .min_length = 3, .max_length = 4})->FreeCharacters(0), 3);
}

TEST(StringRules, ALineIsReadBack) {
  const StringRules rules = {
      .patterns = {"^\"é\\n$", "a"}, .format = "date", .others = {"x\n"}, .min_length = 2, .max_length = 5};
  const std::string line = StringRulesLine(rules);
  EXPECT_TRUE(IsStringRulesLine(line));
  EXPECT_EQ(ParseStringRulesLine(line), rules);
  EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; }));
  EXPECT_EQ(ParseStringRulesLine(StringRulesLine({})), StringRules());
  const StringRules bare = {.patterns = {"a"}, .full_match = true, .bare = true, .without = "</a>"};
  EXPECT_EQ(ParseStringRulesLine(StringRulesLine(bare)), bare);
}

TEST(StringRules, HostilePatternsEndWithinTheirWork) {
  for (const char* pattern :
       {"^((a{1,100}){1,100}){1,100}$", "^(){1000000000}(a|(b{0,1000}c){0,1000})$",
        "^(.{0,50}a){0,50}.{0,60}b(a|b){0,99}$", "^((((a*)*)*)*){1000}b{9999}c{9999}$"}) {
    const Status refusal = Refusal({.patterns = {pattern}});
    EXPECT_EQ(refusal.code(), StatusCode::kUnsupported) << pattern;
    EXPECT_THAT(refusal.message(), HasSubstr("too large")) << pattern;
  }
}

TEST(StringFormats, DescribeWhatTheirStandardsDo) {
  const auto expect = [](const std::string& format, std::initializer_list<const char*> good,
                         std::initializer_list<const char*> bad) {
    const auto automaton = Compiled({.format = format});
    ASSERT_TRUE(automaton);
    for (const char* text : good) EXPECT_TRUE(automaton->Describes(text)) << format << ": " << text;
    for (const char* text : bad) EXPECT_FALSE(automaton->Describes(text)) << format << ": " << text;
  };
  expect("date", {"2024-02-29", "2000-02-29", "0001-01-01"},
         {"2023-02-29", "1900-02-29", "2024-04-31", "2024-00-10", "0000-01-01", "2024-1-1"});
  expect("time", {"12:30:00Z", "23:59:59.999+05:30"}, {"24:00:00Z", "12:30Z", "12:30:00", "12:30:60Z"});
  expect("date-time", {"2024-02-29T12:30:00Z"}, {"2024-02-29 12:30:00Z", "2023-02-29T12:30:00Z"});
  expect("duration", {"P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W"}, {"P", "PT", "P1S", "P1D2Y", "1D"});
  expect("ipv4", {"0.0.0.0", "255.255.255.255"}, {"01.2.3.4", "256.1.1.1", "1.2.3"});
  expect("ipv6",
         {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"},
         {":", "1:2:3:4:5:6:7", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9", "::1.2.3.256"});
  expect("uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567e89b12d3a456426614174000"});
  expect("hostname", {"a", "a-b.example.com"}, {"-a", "a-", "a..b", "", ".a"});
  EXPECT_FALSE(Fits({.format = "hostname"}, std::string(64, 'a')));
  EXPECT_FALSE(Fits({.format = "hostname"}, std::string(63, 'a') + "." + std::string(63, 'a') + "." +
                                                std::string(63, 'a') + "." + std::string(62, 'a')));
  expect("email", {"a@b", "joe.bloggs+x@example.com"}, {"@", "a@", ".a@b", "a b@c", "a@b@c", "a@-b"});
  expect("uri", {"http://a/b?c#d", "mailto:a@b", "urn:x:y"}, {"//a", "a b:c", "http://a/%zz", "1http://a"});
  expect("uri-reference", {"", "a/b", "//host/x", "#f", "http://a"}, {"a b", "1:2", "%"});
  expect("uri-template", {"http://a/{x}{?y*,z:3}"}, {"{", "{x", "{}", "a b"});
  expect("json-pointer", {"", "/a", "/a~1b/0", "/\"", "/é"}, {"a", "/~2", "/~"});
  expect("relative-json-pointer", {"0", "1/a", "2#"}, {"/a", "01", "1#/a"});
  EXPECT_EQ(Refusal({.format = "regex"}).code(), StatusCode::kUnsupported);
  EXPECT_TRUE(Fits({.format = "int32"}, "anything"));
}

}  // namespace
}  // namespace longspec
