// SPDX-License-Identifier: Apache-2.0
#include "openai/suggestions.h"

#include <gtest/gtest.h>

namespace longspec::openai {
namespace {

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
}  // namespace longspec::openai
