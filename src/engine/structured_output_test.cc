// SPDX-License-Identifier: Apache-2.0
//
// Answers that follow a grammar, through the facade, over a tiny random model: what they say is valid, and
// the same with speculation and without, alone and beside others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/testing/files.h"
#include "formats/tiny_model.h"
#include "grammar/grammar.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

using Json = nlohmann::json;
using Kind = GrammarText::Kind;
using ::testing::HasSubstr;

const std::vector<GrammarText>& Grammars() {
  static const std::vector<GrammarText> grammars = {
      {Kind::kJsonSchema, R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 6},
          "kind": {"enum": ["first", "second"]}, "size": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "kind", "size"]})"},
      {Kind::kJsonSchema, R"({"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 6})"},
      {Kind::kGbnf,
       "root ::= word (\", \" word){3,5} \".\"\nword ::= \"to\" | \"be\" | \"or not\" | [x-z]{2,4}"},
      {Kind::kJsonSchema,
       R"({"anyOf": [{"const": {"a": null}}, {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}]})"},
  };
  return grammars;
}

bool IsValid(size_t grammar, const std::string& text) {
  if (grammar == 2) return text.ends_with('.') && std::ranges::count(text, ',') >= 3;
  const Json json = Json::parse(text, nullptr, false);
  if (grammar == 0) {
    return json.is_object() && json.size() == 3 && json["name"].is_string() &&
           (json["kind"] == "first" || json["kind"] == "second") && json["size"] >= 0 && json["size"] <= 99;
  }
  if (grammar == 1) return json.is_array() && json.size() >= 3 && json.size() <= 6 && json[0].is_boolean();
  return json == Json{{"a", nullptr}} || (json.is_string() && json.get<std::string>().size() == 7);
}

class StructuredOutput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(WriteTinyModel({}, Path()).ok()); }
  static std::string Path() {
    static const testing::Folder folder;
    return folder.File("tiny.gguf");
  }

  void SetUp() override {
    auto engine = Engine::Load({.path = Path(), .threads = 1, .calibration_cache = false});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  }

  static GenerationRequest Request(size_t grammar, float temperature, const SpeculationOptions& speculation) {
    GenerationRequest request;
    request.prompt = "Say something, number " + std::to_string(grammar) + ". number number number.";
    request.n_predict = 420;  // a random model likes white space
    request.sampling.temperature = temperature;
    request.sampling.seed = 11;
    request.grammar = Grammars()[grammar];
    request.speculation = speculation;
    return request;
  }

  GenerationResult Generate(const GenerationRequest& request) {
    auto session = engine_->NewSession();
    auto result = engine_->Generate(**session, request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : GenerationResult();
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(StructuredOutput, ValidAndTheSameWithAnySpeculation) {
  const std::vector<SpeculationOptions> speculations = {{.type = "grammar"},
                                                        {.type = "auto"},
                                                        {.type = "ngram", .ngram = {.min = 1}, .tree = "3"},
                                                        {.type = "ppm"}};
  int64_t accepted = 0;
  for (size_t i = 0; i < Grammars().size(); ++i) {
    for (const float temperature : {0.0F, 0.7F}) {
      const GenerationResult plain = Generate(Request(i, temperature, {.type = "none"}));
      SCOPED_TRACE(plain.text);
      EXPECT_EQ(plain.finish_reason, FinishReason::kStop);
      EXPECT_TRUE(IsValid(i, plain.text));
      for (const SpeculationOptions& speculation : speculations) {
        const GenerationResult result = Generate(Request(i, temperature, speculation));
        EXPECT_EQ(result.tokens, plain.tokens) << speculation.type;
        EXPECT_EQ(result.text, plain.text) << speculation.type;
        accepted += result.timings.draft_n_accepted;
      }
    }
  }
  EXPECT_GT(accepted, 50);  // else nothing was tested
}

TEST_F(StructuredOutput, SeveralGrammarsInOneBatch) {
  auto scheduler = engine_->NewScheduler({.parallel = 8});
  ASSERT_TRUE(scheduler.ok());
  std::vector<std::vector<int32_t>> alone, together(2 * Grammars().size());
  for (size_t i = 0; i < together.size(); ++i) {
    const size_t grammar = i / 2;
    const GenerationRequest request = Request(grammar, i % 2 == 0 ? 0.0F : 0.7F, {.type = "auto"});
    alone.push_back(Generate(request).tokens);
    const auto id = (*scheduler)
                        ->Submit({.request = std::make_shared<const GenerationRequest>(request),
                                  .on_end = [&, i](int, Result<GenerationResult> result) {
                                    ASSERT_TRUE(result.ok()) << result.status().message();
                                    together[i] = result->tokens;
                                  }});
    ASSERT_TRUE(id.ok()) << id.status().message();
  }
  while (*(*scheduler)->RunRound()) {
  }
  EXPECT_EQ(together, alone);
}

TEST_F(StructuredOutput, AnAnswerThatIsCutShortSaysSo) {
  GenerationRequest request = Request(0, 0.7F, {.type = "auto"});
  request.n_predict = 5;
  const GenerationResult result = Generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(result.text.starts_with("{"));
}

TEST_F(StructuredOutput, WhatIsWrongIsSaidBeforeAnythingIsComputed) {
  auto session = engine_->NewSession();
  GenerationRequest request = Request(0, 0.0F, {.type = "none"});
  request.grammar = {Kind::kGbnf, "root ::= nothing"};
  EXPECT_THAT(engine_->Generate(**session, request).status().message(),
              HasSubstr("\"nothing\" is not defined"));
  EXPECT_TRUE((*session)->tokens().empty());
  EXPECT_EQ(engine_->PrepareGrammar(request.grammar).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(engine_->PrepareGrammar(Grammars()[0]).ok());
  const auto scheduler = engine_->NewScheduler();
  EXPECT_FALSE((*scheduler)
                   ->Submit({.request = std::make_shared<const GenerationRequest>(request), .on_end = {}})
                   .ok());
  request.grammar = Grammars()[0];
  request.ignore_eos = true;
  EXPECT_THAT(engine_->Generate(**session, request).status().message(), HasSubstr("ignore_eos"));
}

TEST_F(StructuredOutput, ABiasCannotLeaveNothing) {
  GenerationRequest request = Request(1, 0.0F, {.type = "auto"});
  for (const int32_t token : engine_->Tokenize("[", false))
    request.sampling.logit_bias.emplace_back(token, -INFINITY);
  auto session = engine_->NewSession();
  EXPECT_THAT(engine_->Generate(**session, request).status().message(),
              HasSubstr("none of the tokens that the grammar allows can be chosen"));
}

TEST(StructuredOutputTemplate, GetsVariablesAndMessagesWithMore) {
  const testing::Folder folder;
  const std::string path = folder.File("tiny.gguf");
  ASSERT_TRUE(WriteTinyModel({}, path).ok());
  const auto engine = Engine::Load({.path = path, .vocab_only = true});
  ASSERT_TRUE(engine.ok());
  EXPECT_THAT((*engine)->info().chat_template, HasSubstr("messages"));
  const auto text = (*engine)->ApplyChatTemplate({{"user", "a"}}, false,
                                                 R"({"messages": [{"role": "user", "content": "b"}]})");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(*text, HasSubstr("b"));
  EXPECT_FALSE((*engine)->ApplyChatTemplate({{"user", "a"}}, false, "[").ok());
  EXPECT_FALSE((*engine)->ApplyChatTemplate({{"user", "a", "[1]"}}, false).ok());
  const auto role = (*engine)->ApplyChatTemplate({{"user", "a", R"({"role": "tool"})"}}, false);
  ASSERT_TRUE(role.ok()) << role.status().message();
  EXPECT_THAT(*role, HasSubstr("tool"));
}

}  // namespace
}  // namespace longspec
