// SPDX-License-Identifier: Apache-2.0
//
// Grammars as llama.cpp writes them are read, and mistakes have a line.
#include "grammar/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspec {
namespace {

using ::testing::HasSubstr;

std::string Translated(std::string_view text) {
  auto translated = TranslateGbnf(text);
  return translated.ok() ? *translated : "error: " + translated.status().message();
}

TEST(Gbnf, RulesAreRenamedAndTheRootComesFirst) {
  EXPECT_EQ(Translated("a ::= \"x\"\nroot ::= a Token\nToken ::= a"),
            "root ::= r1\nr0 ::= \"x\"\nr1 ::= r0 r2\nr2 ::= r0\n");
}

TEST(Gbnf, CharactersAreWrittenSoThatTheyMeanThemselves) {
  EXPECT_EQ(Translated(R"(root ::= "a\"\n" [^a-z\]é\x41] .)"),
            "root ::= r0\nr0 ::= \"a\\U00000022\\U0000000a\" [^a-z\\U0000005d\\U000000e9A] "
            "[\\U00000001-\\U0010ffff]\n");
}

TEST(Gbnf, AlternativesGroupsAndRepetitions) {
  EXPECT_EQ(Translated("root ::= (\"a\" | \"b\"\n  \"c\")* |\n \"d\"{2,} \"e\"{3} \"f\"{1,4}? # comment\n"),
            "error: grammar: line 3: an element has one repetition; put it into a group for another");
  EXPECT_EQ(Translated("root ::= (\"a\" | \"b\"\n  \"c\")* |\n \"d\"{2,} \"e\"{3} \"f\" {1,4} | # comment\n"),
            "root ::= r0\nr0 ::= (\"a\" | \"b\" \"c\")* | \"d\"{2,} \"e\"{3} \"f\"{1,4} | \"\"\n");
}

TEST(Gbnf, WhatLlamaCppShipsIsRead) {
  const char* json = R"(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)";
  const std::string translated = Translated(json);
  EXPECT_THAT(translated, HasSubstr("root ::= r0\n"));
}

TEST(Gbnf, MistakesAreNamedWithTheirLine) {
  const auto expect = [](std::string_view text, const std::string& message) {
    EXPECT_THAT(Translated(text), HasSubstr("error: grammar: " + message)) << text;
  };
  expect("", "there is no rule \"root\"");
  expect("a ::= \"x\"", "there is no rule \"root\"");
  expect("root ::= a\n", "line 1: the rule \"a\" is not defined");
  expect("root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule \"root\" is defined twice");
  expect("root ::= \"a", "line 1: a text in quotes ends with '\"', but the text ends");
  expect("root ::= \"a\n\"", "line 1: a text in quotes ends with '\"', but the line ends");
  expect("root ::= [a", "line 1: a class of characters ends with ']'");
  expect("root ::= []", "line 1: a class of characters must not be empty");
  expect("root ::= [z-a]", "line 1: in a class of characters a range must not fall");
  expect("root ::= (\"a\"", "line 1: a group ends with ')', but the text ends");
  expect("root ::= \"a\")", "line 1: a rule ends with its line, but there is ')'");
  expect("root = \"a\"", "line 1: \"::=\" must follow the name of the rule \"root\"");
  expect("root ::= \"\\q\"", "line 1: '\\q' is no character");
  expect("root ::= \"\\x4\"", "line 1: a character by its number needs 2 hexadecimal digits");
  expect("root ::= \"\\uD800\"", "line 1: a character must be of Unicode");
  expect("root ::= \"\xC3\x28\"", "line 1: the text is not UTF-8");
  expect("root ::= \"a\"{2000000}", "line 1: a repetition may be at most 1000000");
  expect("root ::= \"a\"{99999999999999}", "line 1: a repetition may be at most 1000000");
  expect("root ::= \"a\"{3,2}", "line 1: in {m,n} n must not be less than m");
  expect("root ::= \"a\"{x}", "line 1: a repetition needs a number, but there is 'x'");
  expect("root ::= <[7]>", "line 1: tokens (<[7]>, <text>) are not supported");
  expect("root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')'),
         "line 1: groups may lie at most 64");
}

}  // namespace
}  // namespace longspec
