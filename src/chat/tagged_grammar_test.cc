// SPDX-License-Identifier: Apache-2.0
//
// The grammar of calls in tags allows what the model is shown, and what it allows is read back.
#include "chat/tagged_grammar.h"

#include <gtest/gtest.h>

#include "chat/tool_calls.h"
#include "grammar/testing/byte_vocabulary.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;
using testing::ByteVocabulary;

Tool Weather(bool strict = false) {
  return {.name = "weather",
          .parameters = Json::parse(R"({"type": "object", "required": ["city", "at"], "properties": {
    "city": {"type": "string"}, "at": {"type": "integer", "minimum": 5}, "kind": {"$ref": "#/$defs/kind"},
    "tags": {"type": "array", "items": {"$ref": "#/$defs/kind"}}, "note": {"type": ["string", "null"]}},
    "$defs": {"kind": {"enum": ["a", "b"]}}})"),
          .strict = strict};
}

std::string Argument(const std::string& name, const std::string& value) {
  return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
}
std::string CallOf(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n<function=" + name + ">\n" + arguments + "</function>\n</tool_call>";
}

class TaggedGrammar : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  }

  static bool Allows(const Tool& tool, const std::string& text) {
    static const auto compiler = *GrammarCompiler::Create(ByteVocabulary::Make());
    const Json tags = {{"type", "triggered_tags"},
                       {"triggers", {"<tool_call>"}},
                       {"tags", {TaggedCallTag(tool)}},
                       {"at_least_one", true},
                       {"stop_after_first", true}};
    const Json tag = {{"type", "structural_tag"}, {"format", tags}};
    const auto grammar = compiler->Compile({GrammarText::Kind::kStructuralTag, tag.dump()});
    EXPECT_TRUE(grammar.ok()) << grammar.status().message();
    if (!grammar.ok()) return false;
    return ByteVocabulary::IsTaken(text, **grammar);
  }
};

TEST_F(TaggedGrammar, AllowsCallsAsTheModelIsShownThem) {
  const std::string city = Argument("city", "Bonn"), at = Argument("at", "7");
  EXPECT_TRUE(Allows(Weather(), CallOf("weather", city + at)));
  EXPECT_TRUE(
      Allows(Weather(), CallOf("weather", city + at + Argument("kind", "b") +
                                              Argument("tags", R"(["a", "b"])") + Argument("note", "null"))));
  EXPECT_TRUE(
      Allows(Weather(), CallOf("weather", Argument("city", "if (a < b) {\n  \"x\"\n}\n</para") + at)));
  EXPECT_TRUE(Allows({.name = "now", .parameters = {{"type", "object"}}}, CallOf("now", "")));
  EXPECT_FALSE(Allows(Weather(), CallOf("weather", city)));                        // at is missing
  EXPECT_FALSE(Allows(Weather(), CallOf("weather", at + city)));                   // another order
  EXPECT_FALSE(Allows(Weather(), CallOf("weather", city + Argument("at", "4"))));  // too small
  EXPECT_FALSE(Allows(Weather(), CallOf("weather", city + Argument("at", "soon"))));
  EXPECT_FALSE(Allows(Weather(), CallOf("weather", city + at + Argument("kind", "c"))));
  EXPECT_FALSE(Allows(Weather(), CallOf("weather", city + at + Argument("tags", R"(["c"])"))));
  EXPECT_FALSE(Allows(Weather(), CallOf("weather", city + at + Argument("other", "1"))));
  EXPECT_FALSE(Allows(Weather(), CallOf("other", "")));
}

TEST_F(TaggedGrammar, OtherArgumentsWhereTheSchemaAllowsThem) {
  const Tool open = {.name = "f", .parameters = {{"type", "object"}, {"additionalProperties", true}}};
  EXPECT_TRUE(Allows(open, CallOf("f", "")));
  EXPECT_TRUE(Allows(open, CallOf("f", Argument("a", "1") + Argument("b_c", "two\nlines"))));
  EXPECT_FALSE(Allows(open, CallOf("f", "no argument")));
}

// A schema that no grammar keeps to lets any value of its type be, unless it is strict.
TEST_F(TaggedGrammar, WhatCannotBeKept) {
  const Tool loose = {.name = "f",
                      .parameters = Json::parse(R"({"type": "object", "required": ["a"], "properties": {
      "a": {"type": "array", "contains": {"const": 1}}}})")};
  EXPECT_TRUE(Allows(loose, CallOf("f", Argument("a", "[2]"))));
  EXPECT_FALSE(Allows(loose, CallOf("f", Argument("a", "{}"))));
  const auto rule = [](const std::string& schema) {
    return RuleNotKept({.name = "f", .parameters = Json::parse(schema), .strict = true});
  };
  EXPECT_EQ(RuleNotKept(Weather(true)), "");
  EXPECT_EQ(rule(R"({"properties": {"a": {"type": "string", "pattern": "^x$"}}})"), "");
  EXPECT_EQ(
      rule(R"({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 2}]}}})"),
      "minimum of a");
  EXPECT_EQ(
      rule(
          R"({"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"type": "string", "maxLength": 3}}})"),
      "");
  EXPECT_EQ(rule(R"({"properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "integer", "minimum": 2}}})"),
            "");
  EXPECT_EQ(rule(R"({"additionalProperties": {"type": "integer"}})"), "additionalProperties");
  EXPECT_EQ(rule(R"({"minProperties": 1})"), "minProperties");
}

TEST_F(TaggedGrammar, TextsKeepToTheirRules) {
  const auto tool = [](const std::string& rules, bool strict) {
    return Tool{
        .name = "f",
        .parameters = Json::parse(R"({"type": "object", "required": ["a"], "properties": {"a": )" + rules +
                                  R"(}, "$defs": {"short": {"type": "string", "maxLength": 3}}})"),
        .strict = strict};
  };
  struct {
    const char* rules;
    std::vector<std::string> good, bad;
  } const cases[] = {
      {R"({"type": "string", "pattern": "^[a-z]{2,200}$"})",
       {"ab", std::string(200, 'x')},
       {"a", "a\nb", std::string(201, 'x'), "\"ab\""}},
      {R"({"type": "string", "format": "date"})", {"2024-02-29"}, {"2024-02-30", "\"2024-02-29\"", ""}},
      {R"({"$ref": "#/$defs/short"})", {"", "a\n\"", "<\xC3\xA9>"}, {"abcd"}},
      {R"({"anyOf": [{"$ref": "#/$defs/short"}, {"type": "null"}, {"const": "else"}]})",
       {"null", "abc", "else"},
       {"abcd", "elsa"}},
      {R"({"type": "string", "maxLength": 60})",
       {"</para", "</param <b></b>"},
       {"</parameter>\n<parameter=b>\n1", "</parameter>"}},
  };
  for (const auto& one : cases) {
    for (const bool strict : {true, false}) {
      EXPECT_EQ(RuleNotKept(tool(one.rules, strict)), "");
      for (const std::string& text : one.good)
        EXPECT_TRUE(Allows(tool(one.rules, strict), CallOf("f", Argument("a", text)))) << one.rules << text;
      for (const std::string& text : one.bad)
        EXPECT_FALSE(Allows(tool(one.rules, strict), CallOf("f", Argument("a", text)))) << one.rules << text;
    }
  }
  // What cannot be kept lets any text be, where it is not strict.
  const Tool loose = tool(R"~({"type": "string", "pattern": "^(?=x)"})~", false);
  EXPECT_TRUE(Allows(loose, CallOf("f", Argument("a", "any\ntext"))));
  EXPECT_FALSE(Allows(loose, CallOf("f", Argument("b", "any"))));
}

// What it allows is read as the schema means it.
TEST_F(TaggedGrammar, IsReadBack) {
  const Tool tool = Weather();
  const std::string call = CallOf("weather", Argument("city", "Bonn\n\"am\" Rhein") + Argument("at", "70") +
                                                 Argument("kind", "a") + Argument("note", "7"));
  ASSERT_TRUE(Allows(tool, call));
  const auto form =
      std::make_shared<const CallForm>(CallForm{.format = ToolFormat::kTagged, .tools = {tool}});
  const AnswerParts parts = ToolCallReader(form).ReadWhole(call);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(Json::parse(std::get<ToolCallPiece>(parts[0]).arguments),
            Json::parse(R"({"city": "Bonn\n\"am\" Rhein", "at": 70, "kind": "a", "note": "7"})"));
}

}  // namespace
}  // namespace longspec::chat
