// SPDX-License-Identifier: Apache-2.0
//
// Compiled grammars: what they allow, and what they refuse to be.
#include "grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/counter_rng.h"
#include "base/testing/sanitized.h"
#include "base/testing/source_path.h"
#include "grammar/testing/byte_vocabulary.h"

namespace longspec::testing {
namespace {

using Json = nlohmann::json;
using Kind = GrammarText::Kind;
using ::testing::HasSubstr;
using Vocabulary = ByteVocabulary;

class GrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  }

  static GrammarCompiler& Compiler() {
    static const auto compiler = *GrammarCompiler::Create(Vocabulary::Make());
    return *compiler;
  }
  static std::unique_ptr<Constraint> Start(Kind kind, const std::string& text) {
    const auto grammar = Compiler().Compile({kind, text});
    EXPECT_TRUE(grammar.ok()) << text << ": " << grammar.status().message();
    return grammar.ok() ? *(*grammar)->NewConstraint() : nullptr;
  }
  static Status Refusal(Kind kind, const std::string& text) {
    return Compiler().Compile({kind, text}).status();
  }

  // Whether the text, in these tokens or in bytes, is a whole answer.
  static bool IsAnswer(Constraint& constraint, const std::string& text) {
    int n = 0;
    bool all = true;
    for (const int32_t token : Vocabulary::Encode(text)) {
      const bool allowed = IsAllowed(*constraint.Mask(), token);
      all = constraint.Accept(token);
      EXPECT_EQ(all, allowed) << text << ": the mask and Accept differ at token " << n;
      if (!all) break;
      ++n;
    }
    const bool complete = all && constraint.complete();
    EXPECT_EQ(all && IsAllowed(*constraint.Mask(), Vocabulary::kEnd), complete) << text;
    constraint.Rollback(n);
    return complete;
  }
};

TEST_F(GrammarTest, SchemasAllowWhatTheyDescribeAndNothingElse) {
  std::ifstream file(testing::SourcePath("src/grammar/testdata/schemas.jsonl"));
  int n = 0;
  for (std::string line; std::getline(file, line); ++n) {
    const auto test = nlohmann::ordered_json::parse(line);
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto constraint = Start(Kind::kJsonSchema, test["schema"].dump());
    ASSERT_NE(constraint, nullptr);
    for (const auto& text : test["good"]) EXPECT_TRUE(IsAnswer(*constraint, text)) << text;
    for (const auto& text : test["bad"]) EXPECT_FALSE(IsAnswer(*constraint, text)) << text;
  }
  EXPECT_GE(n, 20);
}

// Any choice among the allowed tokens ends, or can go on.
TEST_F(GrammarTest, RandomAnswersParse) {
  const RngStream rng{.seed = 3, .purpose = RngPurpose::kTest};
  std::ifstream file(testing::SourcePath("src/grammar/testdata/schemas.jsonl"));
  uint64_t answer = 0;
  int n_ended = 0;
  for (std::string line; std::getline(file, line);) {
    const auto constraint = Start(Kind::kJsonSchema, nlohmann::ordered_json::parse(line)["schema"].dump());
    for (int i = 0; i < 5; ++i) {
      ++answer;
      std::string text;
      int n = 0;
      for (; n < 400 && !constraint->ended(); ++n) {
        std::vector<int32_t> allowed;
        for (int32_t t = 0; t < Vocabulary::n_logits(); ++t) {
          if (IsAllowed(*constraint->Mask(), t)) allowed.push_back(t);
        }
        ASSERT_FALSE(allowed.empty()) << text;
        const bool end = IsAllowed(*constraint->Mask(), Vocabulary::kEnd);
        const auto draw = static_cast<size_t>(rng.Uniform(answer, static_cast<uint32_t>(n)) *
                                              static_cast<double>(allowed.size()));
        const int32_t token = end ? Vocabulary::kEnd : allowed[draw];
        ASSERT_TRUE(constraint->Accept(token));
        if (!end) text += Vocabulary::Make().tokens[static_cast<size_t>(token)];
      }
      if (constraint->ended()) {
        ++n_ended;
        EXPECT_TRUE(Json::accept(text)) << text;
      }
      constraint->Rollback(n);
    }
  }
  EXPECT_GT(n_ended, 50);
}

TEST_F(GrammarTest, TokensWithoutTextAreInNoAnswer) {
  const auto constraint = Start(Kind::kGbnf, "root ::= .*");
  const auto mask = *constraint->Mask();
  EXPECT_TRUE(IsAllowed(mask, 'a'));
  EXPECT_TRUE(IsAllowed(mask, Vocabulary::kEnd));
  EXPECT_TRUE(IsAllowed(mask, Vocabulary::kOtherEnd));
  EXPECT_FALSE(IsAllowed(mask, Vocabulary::kControl));
  EXPECT_FALSE(IsAllowed(mask, Vocabulary::n_logits() - 1));
  EXPECT_FALSE(constraint->Accept(Vocabulary::kControl));
  EXPECT_FALSE(constraint->Accept(-1));
  EXPECT_FALSE(constraint->Accept(1 << 20));
}

TEST_F(GrammarTest, TheEndIsAllowedOnlyWhereTheAnswerIsComplete) {
  const auto constraint = Start(Kind::kGbnf, "root ::= \"ab\"");
  EXPECT_FALSE(constraint->Accept(Vocabulary::kEnd));
  EXPECT_TRUE(constraint->Accept('a'));
  EXPECT_FALSE(constraint->complete());
  EXPECT_TRUE(constraint->Accept('b'));
  EXPECT_TRUE(constraint->complete());
  EXPECT_FALSE(constraint->Accept('b'));
  EXPECT_TRUE(constraint->Accept(Vocabulary::kOtherEnd));
  EXPECT_TRUE(constraint->ended());
  EXPECT_FALSE(constraint->Accept(Vocabulary::kEnd));
  constraint->Rollback(2);
  EXPECT_FALSE(constraint->ended());
  EXPECT_FALSE(constraint->complete());
  EXPECT_TRUE(constraint->Accept('b'));
}

TEST_F(GrammarTest, MasksAreTheSameAfterGoingBack) {
  const auto constraint =
      Start(Kind::kJsonSchema, R"({"type": "object", "properties": {"name": {"type": "string"}}})");
  const auto copy = [&] {
    const auto mask = *constraint->Mask();
    return std::vector<uint32_t>(mask.begin(), mask.end());
  };
  std::vector<std::vector<uint32_t>> masks = {copy()};
  const auto tokens = Vocabulary::Encode(R"({"name": "été"})");
  for (const int32_t token : tokens) {
    ASSERT_TRUE(constraint->Accept(token));
    masks.push_back(copy());
  }
  const auto fork = constraint->Fork();
  for (size_t left = tokens.size(); left > 0; --left) {
    EXPECT_EQ(copy(), masks[left]);
    constraint->Rollback(1);
  }
  EXPECT_EQ(copy(), masks[0]);
  EXPECT_TRUE(fork->complete());
  EXPECT_FALSE(constraint->complete());
}

TEST_F(GrammarTest, WhatMustComeNextIsForced) {
  const auto constraint = Start(Kind::kJsonSchema, R"({"type": "object", "properties":
      {"name": {"type": "string"}, "names": {"type": "boolean"}}, "required": ["name", "names"]})");
  const auto text_of = [](const std::vector<int32_t>& tokens) {
    std::string text;
    for (const int32_t token : tokens) text += Vocabulary::Make().tokens[static_cast<size_t>(token)];
    return text;
  };
  EXPECT_EQ(text_of(constraint->Forced(100)), R"({"name": ")");
  EXPECT_EQ(constraint->Forced(2),
            (std::vector<int32_t>{Vocabulary::LongToken("{\""), Vocabulary::LongToken("name")}));
  EXPECT_EQ(constraint->Forced(0), std::vector<int32_t>());
  for (const int32_t token : Vocabulary::Encode(R"({"name":"a")")) ASSERT_TRUE(constraint->Accept(token));
  // As this answer writes it: no blank after a colon.
  EXPECT_EQ(text_of(constraint->Forced(100)), R"(, "names":)");
  for (const int32_t token : Vocabulary::Encode(R"(,"names":)")) ASSERT_TRUE(constraint->Accept(token));
  EXPECT_EQ(text_of(constraint->Forced(100)), "");  // true or false
  ASSERT_TRUE(constraint->Accept('t'));
  EXPECT_EQ(text_of(constraint->Forced(100)), "rue}");
}

// No time at all: the first look at the clock ends it, and clocks are looked at now and then only.
TEST_F(GrammarTest, ALookAheadThatTakesTooLongIsNoFailureOfTheAnswer) {
  GrammarLimits limits;
  limits.look_ahead_ms = -1;
  const auto compiler = *GrammarCompiler::Create(Vocabulary::Make(), limits);
  const auto grammar = *compiler->Compile({Kind::kJsonSchema, R"({"type": "object", "properties":
      {"name": {"type": "string"}}, "required": ["name"]})"});
  const auto constraint = *grammar->NewConstraint();
  int n = 0;
  while (!constraint->Forced(100).empty() && n < 100'000) ++n;
  EXPECT_LT(n, 100'000);
  EXPECT_TRUE(constraint->Mask().ok());
  EXPECT_TRUE(IsAnswer(*constraint, R"({"name": "a"})"));
}

TEST_F(GrammarTest, StructuralTagsConstrainWhatATagBegins) {
  const std::string tag =
      R"({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<tool_call>"],
      "tags": [{"begin": "<tool_call>", "content": {"type": "json_schema", "json_schema":
        {"type": "object", "properties": {"name": {"const": "f"}}, "required": ["name"]}}, "end": "</tool_call>"}]}})";
  const auto constraint = Start(Kind::kStructuralTag, tag);
  ASSERT_NE(constraint, nullptr);
  EXPECT_TRUE(IsAnswer(*constraint, "any text"));
  EXPECT_TRUE(IsAnswer(*constraint, "see <tool_call>{\"name\": \"f\"}</tool_call>"));
  EXPECT_FALSE(IsAnswer(*constraint, "see <tool_call>{\"name\": \"g\"}</tool_call>"));
  EXPECT_FALSE(IsAnswer(*constraint, "see <tool_call>"));
}

// As OpenAI's tools are called: a schema that cannot be kept is no reason to fail.
TEST_F(GrammarTest, WhatIsNotStrictTakesAnyObjectWhereItsSchemaCannotBeKept) {
  const auto tag = [](const std::string& schema, bool strict) {
    return R"({"type": "structural_tag", "format": {"type": "tag", "begin": "<", "end": ">",
        "content": {"type": "json_schema", "json_schema": )" +
           schema + (strict ? "}}}" : R"(, "otherwise": {"type": "object"}}}})");
  };
  const auto of = [](const std::string& rules) {
    return R"({"type": "object", "properties": {"a": )" + rules + R"(}, "required": ["a"]})";
  };
  for (const std::string& schema :
       {of(R"~({"type": "string", "pattern": "^(?=x)"})~"), of(R"({"not": {}})"),
        of(R"({"format": "regex"})"),
        of(R"({"oneOf": [{"type": "object"}, {"type": "object", "maxProperties": 3}, {"type": "array"}]})"),
        of(R"({"type": "integer", "minimum": 2, "multipleOf": 5})"), of(R"({"maxItems": 9007199254740991})"),
        of(R"({"minLength": 9007199254740991})"), of(R"~({"pattern": "^((a{1,100}){1,100}){1,100}$"})~")}) {
    const Status strict = Refusal(Kind::kStructuralTag, tag(schema, true));
    EXPECT_FALSE(strict.ok()) << schema;
    EXPECT_EQ(strict.message().find('\n'), std::string::npos);
    const auto constraint = Start(Kind::kStructuralTag, tag(schema, false));
    ASSERT_NE(constraint, nullptr) << schema;
    EXPECT_TRUE(IsAnswer(*constraint, R"(<{"b": [1]}>)")) << schema;
    EXPECT_FALSE(IsAnswer(*constraint, "<[1]>")) << schema;
    EXPECT_FALSE(IsAnswer(*constraint, "<{}}>")) << schema;
  }
  // Lengths are never too large.
  const auto large =
      Start(Kind::kStructuralTag, tag(of(R"({"type": "string", "maxLength": 524288})"), false));
  EXPECT_TRUE(IsAnswer(*large, R"(<{"a": "b\n"}>)"));
  EXPECT_FALSE(IsAnswer(*large, R"(<{"b": "b"}>)"));
  // A mistake is one in any case.
  EXPECT_EQ(Refusal(Kind::kStructuralTag, tag(of(R"({"type": "text"})"), false)).code(),
            StatusCode::kInvalidArgument);
}

// Lengths are counted beside the grammar, where masks are made near a bound and far from it.
TEST_F(GrammarTest, LengthsAreKeptWhereverTheBoundIs) {
  for (const int most : {3, 16, 127, 128, 129, 500, 4000}) {
    const auto constraint = Start(Kind::kJsonSchema, R"({"type": "string", "minLength": 2, "maxLength": )" +
                                                         std::to_string(most) + "}");
    const auto text = [](int n) { return '"' + std::string(static_cast<size_t>(n), 'x') + '"'; };
    EXPECT_FALSE(IsAnswer(*constraint, text(1)));
    EXPECT_TRUE(IsAnswer(*constraint, text(2)));
    EXPECT_TRUE(IsAnswer(*constraint, text(most)));
    EXPECT_FALSE(IsAnswer(*constraint, text(most + 1)));
    EXPECT_FALSE(IsAnswer(*constraint, "\"a\"\n\"b\""));
    EXPECT_FALSE(IsAnswer(*constraint, "\"a\nb\""));
    EXPECT_TRUE(IsAnswer(*constraint, R"("\"\n")"));
    EXPECT_TRUE(IsAnswer(*constraint, "\"ététété\"") == (most >= 6));
  }
}

TEST_F(GrammarTest, ARegexHoldsItsBounds) {
  for (const int most : {3, 128, 129, 500}) {
    const std::string bound = std::to_string(most) + "}";
    const auto text = [](int n) { return std::string(static_cast<size_t>(n), 'b'); };
    const auto alone = Start(Kind::kRegex, "^[a-z]{2," + bound);
    const auto tag = Start(Kind::kStructuralTag,
                           R"({"type": "structural_tag", "format": {"type": "sequence", "elements": [
            {"type": "const_string", "value": "<"}, {"type": "regex", "pattern": "[^>\n]{2,)" +
                               bound + R"("}, {"type": "const_string", "value": ">"}]}})");
    for (const auto& [constraint, begin, end] :
         {std::tuple(alone.get(), "", ""), std::tuple(tag.get(), "<", ">")}) {
      EXPECT_TRUE(IsAnswer(*constraint, begin + text(most) + end));
      EXPECT_TRUE(IsAnswer(*constraint, begin + text(2) + end));
      EXPECT_FALSE(IsAnswer(*constraint, begin + text(1) + end));
      EXPECT_FALSE(IsAnswer(*constraint, begin + text(most + 1) + end));
      EXPECT_FALSE(IsAnswer(*constraint, begin + std::string("b\nb") + end));
    }
    EXPECT_FALSE(IsAnswer(*alone, "bB"));
  }
  EXPECT_TRUE(IsAnswer(*Start(Kind::kRegex, "(yes|no)?"), ""));
  EXPECT_TRUE(IsAnswer(*Start(Kind::kRegex, "\"(\\\\|é)+\""), "\"\\é\""));
  EXPECT_EQ(Refusal(Kind::kRegex, "(?=a)").code(), StatusCode::kUnsupported);
  EXPECT_THAT(Refusal(Kind::kRegex, "a(").message(), HasSubstr("regex: the pattern has no ) for the ("));
  EXPECT_THAT(Refusal(Kind::kRegex, "((a{1,100}){1,100}){1,100}").message(), HasSubstr("too large"));
}

TEST_F(GrammarTest, ListedNumbersAreSpelledAsTheyAre) {
  const std::vector<std::string> values = {"18446744073709551615",
                                           "18446744073709551616",
                                           "-123456789012345678901234567890",
                                           "9223372036854775808",
                                           "9007199254740993",
                                           "0.1",
                                           "2.5",
                                           "1e+22",
                                           "-7",
                                           R"({"b":[0.1,{"a":36893488147419103233}],"\u0001\"":"é/"})"};
  std::string list;
  for (const std::string& value : values) list += (list.empty() ? "" : ", ") + value;
  const auto any = Start(Kind::kJsonSchema, R"({"enum": [)" + list + "]}");
  const auto tag = Start(Kind::kStructuralTag,
                         R"({"type": "structural_tag", "format": {"type": "json_schema", "json_schema":
                            {"properties": {"a": {"enum": [)" +
                             list + R"(]}}, "required": ["a"]}}})");
  for (const std::string& value : values) {
    const auto one = Start(Kind::kJsonSchema, R"({"const": )" + value + "}");
    EXPECT_TRUE(IsAnswer(*one, value)) << value;
    EXPECT_TRUE(IsAnswer(*any, value)) << value;
    EXPECT_TRUE(IsAnswer(*tag, "{\"a\": " + value + "}")) << value;
  }
  for (const char* other : {"1.8446744073709552e+19", "18446744073709551617", "0.10000000000000001",
                            "9007199254740992", "9223372036854775807"}) {
    EXPECT_FALSE(IsAnswer(*any, other)) << other;
  }
  // They are integers, and numbers, and differ from each other.
  const auto typed =
      Start(Kind::kJsonSchema, R"({"type": "integer", "enum": ["a", 18446744073709551616, 0.5]})");
  EXPECT_TRUE(IsAnswer(*typed, "18446744073709551616"));
  EXPECT_FALSE(IsAnswer(*typed, "0.5"));
  const auto common = Start(Kind::kJsonSchema, R"({"allOf": [{"enum": [18446744073709551616, 1]},
      {"enum": [18446744073709551617, 1]}]})");
  EXPECT_TRUE(IsAnswer(*common, "1"));
  EXPECT_FALSE(IsAnswer(*common, "18446744073709551616"));
  // As bounds they are numbers like others, or refused.
  const auto below = Start(Kind::kJsonSchema, R"({"type": "string", "maxLength": 99999999999999999999})");
  EXPECT_TRUE(IsAnswer(*below, "\"a\""));
  EXPECT_FALSE(Refusal(Kind::kJsonSchema, R"({"type": "integer", "minimum": 99999999999999999999})").ok());
  EXPECT_EQ(Refusal(Kind::kJsonSchema, R"({"maxItems": 99999999999999999999})").code(),
            StatusCode::kResourceExhausted);
}

TEST_F(GrammarTest, NamesThatAreFreeAreNoneOfTheListedOnes) {
  const auto constraint =
      Start(Kind::kJsonSchema, R"({"type": "object", "properties": {"a": {"type": "null"}},
      "additionalProperties": {"type": "boolean"}})");
  EXPECT_TRUE(IsAnswer(*constraint, R"({"a": null, "\u0062": true})"));
  EXPECT_TRUE(IsAnswer(*constraint, R"({"aa": true, "": false})"));
  EXPECT_FALSE(IsAnswer(*constraint, R"({"a": true})"));
  EXPECT_FALSE(IsAnswer(*constraint, R"({"\u0061": true})"));
}

TEST_F(GrammarTest, HalfACharacterIsNone) {
  const auto constraint = Start(Kind::kJsonSchema, R"({"type": "string"})");
  EXPECT_TRUE(IsAnswer(*constraint, R"("\ud83d\uDE00 \u00e9 \ud7ff")"));
  EXPECT_FALSE(IsAnswer(*constraint, R"("\ud83d")"));
  EXPECT_FALSE(IsAnswer(*constraint, R"("\ude00")"));
  EXPECT_FALSE(IsAnswer(*constraint, "\"\xED\xA0\x80\""));
  const auto any = Start(Kind::kGbnf, "root ::= .*");
  EXPECT_FALSE(IsAnswer(*any, "\xED\xA0\x80"));
  EXPECT_TRUE(IsAnswer(*any, "\xED\x9F\xBF\xEE\x80\x80"));
}

TEST_F(GrammarTest, AnObjectOfAnyKind) {
  const auto constraint = Start(Kind::kJsonObject, "");
  EXPECT_TRUE(IsAnswer(*constraint, R"({"a": [1, {"b": null}], "c": "d\n"})"));
  EXPECT_FALSE(IsAnswer(*constraint, "[1]"));
  EXPECT_FALSE(IsAnswer(*constraint, R"({"a": })"));
}

TEST_F(GrammarTest, WhiteSpaceEnds) {
  const auto constraint = Start(Kind::kJsonObject, "");
  ASSERT_TRUE(constraint->Accept('{'));
  int n = 0;
  while (n < 100 && constraint->Accept(' ')) ++n;
  EXPECT_LT(n, 50);
}

TEST_F(GrammarTest, CompiledOnceAndForgottenWhenThereAreMany) {
  GrammarLimits limits;
  limits.cached_bytes = 1;
  const auto compiler = *GrammarCompiler::Create(Vocabulary::Make(), limits);
  const GrammarText text = {Kind::kGbnf, "root ::= \"a\""};
  auto first = *compiler->Compile(text);
  EXPECT_EQ(first, *compiler->Compile(text));  // held by the caller
  const std::weak_ptr<const Grammar> seen = first;
  first.reset();
  ASSERT_TRUE(compiler->Compile({Kind::kGbnf, "root ::= \"b\""}).ok());
  EXPECT_TRUE(seen.expired());
  // The same text as another kind is another grammar.
  EXPECT_FALSE(compiler->Compile({Kind::kJsonSchema, text.text}).ok());
}

TEST_F(GrammarTest, AGrammarOutlivesItsCompilerAndServesManyThreads) {
  auto compiler = *GrammarCompiler::Create(Vocabulary::Make());
  const auto grammar = *compiler->Compile({Kind::kJsonObject, ""});
  compiler.reset();
  std::vector<std::thread> threads;
  std::vector<char> right(4, 0);
  for (size_t i = 0; i < right.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto constraint = *grammar->NewConstraint();
      for (int round = 0; round < 20; ++round)
        right[i] = IsAnswer(*constraint, R"({"a": [true, {"b": 1.5e3}]})") ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(1));
}

TEST_F(GrammarTest, WhatCannotBeCompiledIsRefused) {
  const auto expect = [](Kind kind, const std::string& text, StatusCode code, const std::string& message) {
    const Status refusal = Refusal(kind, text);
    EXPECT_EQ(refusal.code(), code) << text.substr(0, 80) << ": " << refusal.message();
    EXPECT_THAT(refusal.message(), HasSubstr(message)) << text.substr(0, 80);
    EXPECT_EQ(refusal.message().find('\n'), std::string::npos);
  };
  expect(Kind::kJsonSchema, R"({"type": "string", "pattern": "("})", StatusCode::kInvalidArgument,
         "JSON schema: ");
  expect(Kind::kJsonSchema, R"({"type": "string", "pattern": "^(?!a)b"})", StatusCode::kUnsupported,
         "lookahead at byte 4 of the pattern is not supported");
  expect(Kind::kJsonSchema, R"({"type": "string", "pattern": "^((a{1,100}){1,100}){1,100}$"})",
         StatusCode::kUnsupported, "a pattern that becomes too large is not supported");
  expect(Kind::kJsonSchema, R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
         StatusCode::kUnsupported, "cannot be kept: oneOf");
  expect(Kind::kJsonSchema, R"({"type": "integer", "minimum": 3, "maximum": 2})",
         StatusCode::kInvalidArgument, "range");
  expect(Kind::kJsonSchema, R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1e-7})",
         StatusCode::kUnsupported, "a range of numbers without one of six digits behind the point");
  expect(Kind::kJsonSchema,
         R"({"properties": {"a": {"anyOf": [{"type": "null"}, )"
         R"({"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": -1.499999}]}}})",
         StatusCode::kUnsupported, "a range of numbers without one of six digits behind the point");
  expect(Kind::kGbnf, "root ::= a\na ::= b\nb ::= a", StatusCode::kInvalidArgument,
         "no answer could satisfy it");
  expect(Kind::kStructuralTag, "{", StatusCode::kInvalidArgument, "structural tag: not JSON");
  expect(Kind::kStructuralTag, "{}", StatusCode::kInvalidArgument, "structural tag: ");
  expect(Kind::kStructuralTag,
         R"({"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"not": {}}}})",
         StatusCode::kUnsupported, "#: not is not supported");
  expect(Kind::kGbnf, "root ::= \"" + std::string(300'000, 'a') + "\"", StatusCode::kResourceExhausted,
         "300011 bytes are more than the 262144");
}

// Thirty tools have thousands of masks, and an answer calls one of them.
TEST_F(GrammarTest, MasksAreMadeWhenAnAnswerComesToThem) {
  std::string schema = R"({"anyOf": [)";
  for (int i = 0; i < 30; ++i) {
    const std::string n = std::to_string(i);
    if (i > 0) schema += ", ";
    schema += R"({"type": "object", "properties": {"name": {"const": "tool)" + n +
              R"("}, "path": {"type": "string"}, "line": {"type": "integer"}, "all": {"type": "boolean"}},)" +
              R"("required": ["name", "path", "line", "all"], "additionalProperties": false})";
  }
  const auto grammar = Compiler().Compile({Kind::kJsonSchema, schema + "]}"});
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const size_t before = (*grammar)->bytes();
  // Answers of one grammar may run on several threads.
  const auto answer = [&](const char* tool) {
    const auto constraint = *(*grammar)->NewConstraint();
    EXPECT_TRUE(IsAnswer(
        *constraint, R"({"name": ")" + std::string(tool) + R"(", "path": "a.cc", "line": 12, "all": true})"));
  };
  std::thread other(answer, "tool7");
  answer("tool8");
  other.join();
  const size_t after = (*grammar)->bytes();
  EXPECT_GT(after, before);
  answer("tool7");
  EXPECT_EQ((*grammar)->bytes(), after);  // they are known now
  answer("tool29");
  EXPECT_GT((*grammar)->bytes(), after);
}

TEST_F(GrammarTest, HostileOnesEndWithinTheirTime) {
  // Sanitized code takes twenty times as long, and what is around the loops that look at the time as well.
  const int size = kSanitized ? 1 : 5, most_ms = 60 * size;
  GrammarLimits limits;
  limits.compile_ms = most_ms;
  const auto compiler = *GrammarCompiler::Create(Vocabulary::Make(), limits);
  std::string optional = "root ::=", choices = R"({"anyOf": [{"type": "null"})";
  for (int i = 0; i < 1000 * size; ++i) optional += " [a-z]?";
  for (int i = 0; i < 400 * size; ++i) {
    const std::string n = std::to_string(i);
    choices += R"(, {"type": "object", "properties": {"k": {"const": "v)" + n + R"("}, "p)" + n +
               R"(": {"type": "string"}}, "required": ["k"]})";
  }
  for (const GrammarText& text :
       {GrammarText{Kind::kGbnf, optional}, GrammarText{Kind::kJsonSchema, choices + "]}"}}) {
    const auto grammar = compiler->Compile(text);
    EXPECT_EQ(grammar.status().code(), StatusCode::kResourceExhausted) << grammar.status().message();
    EXPECT_THAT(grammar.status().message(), HasSubstr("takes more than " + std::to_string(most_ms) + " ms"));
  }
  // These are large, but no trouble.
  EXPECT_TRUE(
      Compiler().Compile({Kind::kJsonSchema, R"({"type": "string", "pattern": "^(a|b)*a(a|b){20}$"})"}).ok());
  EXPECT_TRUE(Compiler().Compile({Kind::kGbnf, "root ::= root root | \"a\" | \"\""}).ok());
}

// Each definition is reached through the one before.
TEST_F(GrammarTest, AChainOfReferencesMayBeAsLongAsASchema) {
  // More than an ordinary stack holds; with sanitizers these are as well.
  const int n_links = std::getenv("LONGSPEC_SKIP_SLOW") != nullptr ? 1500 : 4300;
  std::string schema = R"({"$ref": "#/d0")";
  for (int i = 0; i < n_links; ++i) {
    schema += ", \"d" + std::to_string(i) + R"(": {"properties": {"a": {"$ref": "#/d)" +
              std::to_string(i + 1) + "\"}}}";
  }
  schema += ", \"d" + std::to_string(n_links) + R"(": {"type": "null"}})";
  const auto grammar = Compiler().Compile({Kind::kJsonSchema, schema});
  EXPECT_TRUE(grammar.ok() || grammar.status().code() == StatusCode::kResourceExhausted)
      << grammar.status().message();
}

TEST(NoGrammar, IsRefusedByName) {
  GrammarVocabulary vocabulary = Vocabulary::Make();
  vocabulary.end_tokens.clear();
  const auto compiler = GrammarCompiler::Create(std::move(vocabulary));
  EXPECT_EQ(compiler.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(compiler.status().message(), HasSubstr(HasGrammars() ? "no end token" : "tools/get_xgrammar"));
}

}  // namespace
}  // namespace longspec::testing
