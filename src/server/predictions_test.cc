// SPDX-License-Identifier: Apache-2.0
//
// What an answer to an editor's prompt is likely to be, from the prompt alone.
#include "server/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspec::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// As the plugins of editors write them.
TEST(NextEdit, TheRegionOfSweepsPrompts) {
  const std::string before =
      "<|file_sep|>b.txt\nB\n<|file_sep|>a.ts.diff\noriginal:\nold\nupdated:\nnew\n"
      "<|file_sep|>original/a.ts\none\n<|file_sep|>current/a.ts\n";
  EXPECT_EQ(UneditedRegion(before + "one\ntwo\n<|file_sep|>updated/a.ts\n"), "one\ntwo\n");
  EXPECT_EQ(UneditedRegion(before + "one\ntwo\n<|file_sep|>updated/a.ts"), "one\ntwo\n");
  EXPECT_EQ(UneditedRegion(before + "one\nt<|cursor|>wo\n<|file_sep|>updated/a.ts:1:2\n"), "one\ntwo\n");
  EXPECT_EQ(UneditedRegion(before + "one\n"), std::nullopt);
  EXPECT_EQ(UneditedRegion(before + "one\n<|file_sep|>updated/a.ts\nund"), std::nullopt);
  EXPECT_EQ(UneditedRegion(before + "<|file_sep|>updated/a.ts\n"), std::nullopt);
}

TEST(NextEdit, TheRegionOfZetasPrompts) {
  EXPECT_EQ(
      UneditedRegion("### User Excerpt:\n\n```a.rs\n<|start_of_file|>\nfn f() {}\n<|editable_region_start|>\n"
                     "fn <|user_cursor_is_here|>g() {}\n<|editable_region_end|>\n```\n\n### Response:\n"),
      "<|editable_region_start|>\nfn g() {}\n<|editable_region_end|>");
  EXPECT_EQ(UneditedRegion("<|file_sep|>a.rs\n<|fim_prefix|>\nfn f() {}\n<|fim_middle|>current\nfn "
                           "<|user_cursor|>g() {}\n<|fim_suffix|>\n}\n<|fim_middle|>updated\n"),
            "fn g() {}\n");
  EXPECT_EQ(UneditedRegion(
                "<|fim_prefix|>\na\n<|fim_suffix|>\nc\n<|fim_middle|>current\nb\n<|fim_middle|>updated\n"),
            "b\n");
  EXPECT_EQ(UneditedRegion("<[fim-suffix]>\nc\n<[fim-prefix]><filename>a.rs\na\n<<<<<<< CURRENT\n"
                           "b<|user_cursor|>b\n=======\n<[fim-middle]>"),
            "bb\n");
}

TEST(NextEdit, OtherPromptsHaveNone) {
  for (const char* prompt :
       {"", "one two", "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "<|fim_middle|>current\nb",
        "<|editable_region_start|>", "<|editable_region_start|> and <|editable_region_end|> are marks",
        "<<<<<<< CURRENT\na\n=======\nb\n>>>>>>> OTHER\n", "<|file_sep|>current/"})
    EXPECT_EQ(UneditedRegion(prompt), std::nullopt) << prompt;
}

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

std::string RestOf(const Suggestions& suggestions, const InfillText& text) {
  const auto rest = suggestions.RestOf(text);
  return rest ? rest->text : "nothing";
}

TEST(Suggestions, WhoTypesWhatWasSuggestedIsAnsweredWithTheRest) {
  Suggestions suggestions;
  suggestions.Keep({.prefix = "int x;\n", .suffix = "\n}", .prompt = "x = "}, "foo(bar, baz);", {1, 2, 9},
                   true);
  EXPECT_EQ(RestOf(suggestions, {.prefix = "int x;\n", .prompt = "x = foo("}), "bar, baz);");
  EXPECT_EQ(RestOf(suggestions, {.prefix = "int x;\n", .prompt = "x = "}), "foo(bar, baz);");
  EXPECT_EQ(RestOf(suggestions, {.prefix = "int x;\nx = foo(bar, baz);"}), "");
  EXPECT_FALSE(suggestions.RestOf({.prefix = "int x;\n", .prompt = "x = fob"}));
  EXPECT_FALSE(suggestions.RestOf({.prefix = "int y;\n", .prompt = "x = foo("}));
}

TEST(Suggestions, TheWindowBeforeTheHoleMayMove) {
  Suggestions suggestions;
  suggestions.Keep({.prefix = "one\ntwo\nthree\n", .prompt = "x = "}, "foo();\ny = bar();", {1}, false);
  EXPECT_EQ(RestOf(suggestions, {.prefix = "three\nx = foo();\n", .prompt = "y"}), " = bar();");
}

TEST(Suggestions, TheNewestCountsAndOldOnesAreForgotten) {
  Suggestions suggestions;
  suggestions.Keep({.prefix = "a"}, "1", {1}, false);
  suggestions.Keep({.prefix = "a"}, "2", {2, 9}, true);
  suggestions.Keep({.prefix = "a"}, "", {}, false);
  EXPECT_EQ(RestOf(suggestions, {.prefix = "a"}), "2");
  EXPECT_EQ(suggestions.RestOf({.prefix = "a"})->end_token, 9);
  EXPECT_EQ(suggestions.Tokens(), (std::vector<std::vector<int32_t>>{{2, 9}}));
  for (size_t i = 0; i < Suggestions::kMost; ++i)
    suggestions.Keep({.prefix = "b" + std::to_string(i)}, "3", {3}, false);
  EXPECT_FALSE(suggestions.RestOf({.prefix = "a"}));
}

}  // namespace
}  // namespace longspec::server
