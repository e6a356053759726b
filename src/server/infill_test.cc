// SPDX-License-Identifier: Apache-2.0
//
// Texts with a hole, over a tiny random model whose vocabulary has the tokens for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "server/testing/served_app.h"

namespace longspec::server {
namespace {

using longspec::testing::EventsOf;
using longspec::testing::JsonOf;
using longspec::testing::ServedApp;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kWindow = 64;

class InfillRoutes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    AppOptions options{.infill = {.window = kWindow}};
    options.defaults.generation.speculation.policy = "fixed";  // guesses are made, whatever they cost here
    app_ = std::make_unique<ServedApp>("infill_test", TinyModelOptions{.n_vocab = 400, .fills_holes = true},
                                       std::move(options));
  }
  static void TearDownTestSuite() { app_.reset(); }

  static json Hole(json fields = json::object()) {
    json body = {{"input_prefix", "int f() {\n"},
                 {"input_suffix", "}\n"},
                 {"prompt", "  "},
                 {"n_predict", 12},
                 {"temperature", 0.8},
                 {"seed", 7}};
    body.update(fields);
    return body;
  }
  // Numbers of single characters' tokens.
  static json Tokens(const std::string& text) { return app_->Ok("/tokenize", {{"content", text}})["tokens"]; }

  static std::unique_ptr<ServedApp> app_;
};
std::unique_ptr<ServedApp> InfillRoutes::app_;

TEST_F(InfillRoutes, ThePromptIsLaidOutAsTheModelKnowsIt) {
  const json extra = json::array({{{"text", "int g();\n"}, {"filename", "g.h"}}, {{"text", "x"}}});
  const json answer = app_->Ok("/infill", Hole({{"input_extra", extra}}));
  EXPECT_EQ(answer["prompt"],
            "<|repo_name|>myproject\n<|file_sep|>g.h\nint g();\n<|file_sep|>tmp\nx<|file_sep|>filename\n"
            "<|fim_prefix|>int f() {\n  <|fim_suffix|>}\n<|fim_middle|>");
  EXPECT_EQ(answer["stop"], true);
  // What is far from the hole is cut off.
  const json cut = app_->Ok("/infill", Hole({{"input_prefix", std::string(500, '<')}, {"prompt", ""}}));
  EXPECT_THAT(std::string(cut["prompt"]),
              HasSubstr("<|fim_prefix|>" + std::string(3 * kWindow / 4, '<') + "<|fim_suffix|>"));
  // Again: but for the last token all of it is known.
  EXPECT_EQ(app_->Ok("/infill", Hole({{"input_extra", extra}}))["timings"]["prompt_n"], 1);
}

TEST_F(InfillRoutes, GuessesChangeNothing) {
  const json samplers = json::array({"top_k", "infill"});
  for (const json& fields :
       {json::object(), json{{"samplers", samplers}, {"top_k", 2}, {"ignore_eos", true}}}) {
    json body = Hole(fields);
    body.update(
        {{"return_tokens", true}, {"n_predict", 60}, {"input_prefix", "the sea the sea the sea the"}});
    body["speculative"] = {{"drafters", "ppm"}};
    const json guessed = app_->Ok("/infill", body);
    body["speculative"] = false;
    EXPECT_EQ(app_->Ok("/infill", body)["tokens"], guessed["tokens"]) << fields;
    EXPECT_GT(guessed["tokens"].size(), 10U) << fields;
  }
}

// What was suggested is the likeliest answer as long as it is being typed.
TEST_F(InfillRoutes, TheLastSuggestionIsGuessedAgain) {
  const json body = Hole({{"temperature", 0},
                          {"n_predict", 40},
                          {"ignore_eos", true},
                          {"return_tokens", true},
                          {"return_token_source", true},
                          {"input_prefix", "int last_one() {\n"}});
  const json first = app_->Ok("/infill", body), again = app_->Ok("/infill", body);
  const auto n_predicted = [](const json& answer) {
    return std::ranges::count(answer["token_sources"], json("prediction"));
  };
  EXPECT_GT(n_predicted(again), n_predicted(first) + 10);  // the first knew the text around the hole only
  EXPECT_EQ(again["tokens"], first["tokens"]);
}

TEST_F(InfillRoutes, NothingPredictedIsAWarmUp) {
  const json body = Hole({{"input_prefix", "warm\n"},
                          {"n_predict", 0},
                          {"samplers", json::array()},
                          {"t_max_prompt_ms", 1},
                          {"t_max_predict_ms", 1}});
  const json warm = app_->Ok("/infill", body);
  EXPECT_EQ(warm["content"], "");
  EXPECT_EQ(warm["tokens_predicted"], 0);
  EXPECT_EQ(warm["stop_type"], "limit");
  const json answer = app_->Ok("/infill", Hole({{"input_prefix", "warm\n"}}));
  EXPECT_LE(answer["timings"]["prompt_n"], 2);
  json fields = body;
  fields["response_fields"] = json::array({""});
  EXPECT_EQ(app_->Ok("/infill", fields), json::object());
}

TEST_F(InfillRoutes, SeveralAnswersAndChosenFields) {
  const json fields = {{"n_cmpl", 3}, {"response_fields", {"content", "timings/prompt_n"}}};
  const json answers = app_->Ok("/infill", Hole(fields));
  ASSERT_EQ(answers.size(), 3U);
  for (const json& answer : answers) {
    EXPECT_EQ(answer.size(), 2U);
    EXPECT_TRUE(answer["content"].is_string());
    EXPECT_TRUE(answer["timings/prompt_n"].is_number());
  }
  // Programs look for the text of it.
  const std::string body = app_->Send("/infill", Hole().dump()).body;
  EXPECT_THAT(body, HasSubstr("\"content\":\""));
  EXPECT_EQ(body.find('\n'), body.size() - 1);
}

TEST_F(InfillRoutes, TimeThatIsUpEndsTheTextWithALine) {
  const json letters = Tokens("a\n");
  ASSERT_EQ(letters.size(), 2U);
  const json fields = {{"t_max_predict_ms", 1}, {"n_predict", 600}, {"allowed_token_ids", letters}};
  const json ended = app_->Ok("/infill", Hole(fields));
  EXPECT_LT(ended["tokens_predicted"], 600);
  EXPECT_EQ(ended["stop_type"], "limit");
  EXPECT_TRUE(std::string(ended["content"]).ends_with("\n"));
  // A text without lines goes on.
  json one_line = Hole(fields);
  one_line["allowed_token_ids"] = Tokens("a");
  EXPECT_EQ(app_->Ok("/infill", one_line)["tokens_predicted"], 600);
}

TEST_F(InfillRoutes, ALineThatIsIndentedLessEndsTheText) {
  const json letters = Tokens("a\n");
  const json ended =
      app_->Ok("/infill", Hole({{"n_indent", 1}, {"n_predict", 200}, {"allowed_token_ids", letters}}));
  const std::string content = ended["content"];
  EXPECT_EQ(content.find('\n'), content.size() - 1);
  EXPECT_EQ(ended["stop_type"], "limit");
}

TEST_F(InfillRoutes, MistakesAreNamed) {
  EXPECT_THAT(app_->Refusal("/infill", {{"input_prefix", "a"}}), HasSubstr("input_suffix is missing"));
  EXPECT_THAT(app_->Refusal("/infill", Hole({{"input_extra", {{{"filename", "a"}}}}})),
              HasSubstr("input_extra[0].text is missing"));
}

TEST_F(InfillRoutes, ASuffixOfACompletion) {
  const json body = {{"prompt", "ab"}, {"suffix", "yz"}, {"max_tokens", 8}, {"seed", 7}};
  const json answer = app_->Ok("/v1/completions", body);
  EXPECT_EQ(answer["object"], "text_completion");
  const json tokens = Tokens("<|fim_prefix|>ab<|fim_suffix|>yz<|fim_middle|>");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens.size());
  // The same as if the client had written these tokens.
  const json written = app_->Ok("/v1/completions", {{"prompt", tokens}, {"max_tokens", 8}, {"seed", 7}});
  EXPECT_EQ(written["choices"], answer["choices"]);
}

// Mistral's words for a filling give the text that the same request in OpenAI's words gives, whole and
// streamed.
TEST_F(InfillRoutes, MistralsForm) {
  json body = {
      {"prompt", "ab"}, {"suffix", "yz"}, {"max_tokens", 8}, {"random_seed", 7}, {"temperature", 0.8}};
  const json answer = app_->Ok("/v1/fim/completions", body);
  EXPECT_EQ(answer["object"], "chat.completion");
  const std::string content = answer["choices"][0]["message"]["content"];
  EXPECT_FALSE(content.empty());
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  body["seed"] = 7;
  EXPECT_EQ(app_->Ok("/v1/completions", body)["choices"][0]["text"], content);
  body["stream"] = true;
  std::string streamed;
  for (const json& event : EventsOf(app_->Send("/v1/fim/completions", body.dump()).body)) {
    if (!event.is_object()) continue;
    const json delta = event["choices"][0].value("delta", json::object());
    if (delta.contains("content") && delta["content"].is_string())
      streamed += delta["content"].get<std::string>();
  }
  EXPECT_EQ(streamed, content);
}

TEST(Infill, AModelWithoutTheTokensCannot) {
  ServedApp app("no_infill_test");
  const HttpResponse refused = app.Send("/infill", R"({"input_prefix": "a", "input_suffix": "b"})");
  EXPECT_EQ(refused.status, 501);
  const json error = JsonOf(refused)["error"];
  EXPECT_EQ(error["type"], "not_supported_error");
  EXPECT_THAT(std::string(error["message"]), HasSubstr("no token for a prefix, a suffix, a middle"));
  EXPECT_THAT(app.Refusal("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}}),
              HasSubstr("infill is not supported by this model"));
  EXPECT_THAT(app.Refusal("/v1/fim/completions", {{"prompt", "a"}}),
              HasSubstr("infill is not supported by this model"));
}

}  // namespace
}  // namespace longspec::server
