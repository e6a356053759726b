// SPDX-License-Identifier: Apache-2.0
//
// What the server is told of all chats' thoughts, through every API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "server/testing/served_app.h"

namespace longspec::server {
namespace {

using longspec::testing::ServedApp;
using nlohmann::json;
using ::testing::EndsWith;

AppOptions WithThoughts(api::ThoughtsPlace place, const std::string& variables = "") {
  AppOptions options;
  options.defaults.thoughts = place;
  options.defaults.generation.template_variables = variables;
  return options;
}

json ThoughtfulChat(json fields = json::object()) {
  json body = {{"messages", json::array({{{"role", "user"}, {"content", "?"}}})},
               {"max_tokens", 40},
               {"grammar", R"(root ::= "<think>" [a-z] "</think>" [A-Z])"}};
  body.update(fields);
  return body;
}

TEST(Thoughts, GoWhereTheServerWasToldUnlessARequestSaysIt) {
  if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  ServedApp apart("thoughts_apart_test", {}, WithThoughts(api::ThoughtsPlace::kApart));
  const auto message = [](ServedApp& app, const json& fields) {
    return app.Ok("/v1/chat/completions", ThoughtfulChat(fields))["choices"][0]["message"];
  };
  EXPECT_EQ(message(apart, json::object())["content"].get<std::string>().size(), 1U);
  EXPECT_EQ(message(apart, json::object())["reasoning_content"].get<std::string>().size(), 1U);
  EXPECT_EQ(message(apart, {{"reasoning_format", "none"}})["content"].get<std::string>().size(), 17U);
  EXPECT_EQ(apart.Ok("/v1/messages", ThoughtfulChat())["content"][0]["type"], "thinking");
  json responses = ThoughtfulChat({{"input", "?"}});
  responses.erase("messages");
  responses.erase("max_tokens");
  EXPECT_EQ(apart.Ok("/v1/responses", responses)["output"][0]["type"], "reasoning");
  EXPECT_EQ(apart.Ok("/api/chat", ThoughtfulChat({{"stream", false}}))["message"]["thinking"]
                .get<std::string>()
                .size(),
            1U);

  const TinyModelOptions thinks = {.chat_template = "{{ messages[0].content.split('</think>')[0] }}"};
  ServedApp inside("thoughts_inside_test", thinks, WithThoughts(api::ThoughtsPlace::kInContent));
  EXPECT_EQ(message(inside, json::object())["content"].get<std::string>().size(), 17U);
  EXPECT_EQ(message(inside, {{"reasoning_format", "auto"}})["content"].get<std::string>().size(), 1U);
}

// Of a template that begins a thought whatever it is told.
TEST(Thoughts, CanBeForbiddenForAllChats) {
  const TinyModelOptions thinks = {.chat_template =
                                       "{% for m in messages %}{{ m.content.split('</think>')[-1] }}"
                                       "{% endfor %}{% if add_generation_prompt %}<a><think>\n{% endif %}"};
  const auto prompt = [&](ServedApp& app, const json& fields) {
    return app.Ok("/apply-template", ThoughtfulChat(fields))["prompt"].get<std::string>();
  };
  ServedApp app("thoughts_forbidden_test", thinks,
                WithThoughts(api::ThoughtsPlace::kAuto, R"({"enable_thinking":false})"));
  EXPECT_THAT(prompt(app, json::object()), EndsWith("<a><think>\n</think>\n\n"));
  EXPECT_THAT(prompt(app, {{"enable_thinking", true}}), EndsWith("<a><think>\n"));
  EXPECT_THAT(prompt(app, {{"add_generation_prompt", false}}), EndsWith("?"));
  const json chat = ThoughtfulChat({{"grammar", ""}, {"max_tokens", 4}, {"seed", 1}});
  const json message = app.Ok("/v1/chat/completions", chat)["choices"][0]["message"];
  EXPECT_FALSE(message.contains("reasoning_content"));
  json thinking = chat;
  thinking["enable_thinking"] = true;
  EXPECT_EQ(app.Ok("/v1/chat/completions", thinking)["choices"][0]["message"]["content"], "");
}

// As gpt-oss's does: it says nothing of thoughts at the end of a prompt.
TEST(Thoughts, AreEmptyWhereATemplateLeavesThemToTheModel) {
  ServedApp app("thoughts_empty_test",
                {.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
                                  "<|end|>{% if add_generation_prompt %}<|start|>assistant{% endif %}"
                                  "{# <|channel|>analysis<|message|> #}"});
  const std::string analysis = "<|channel|>analysis<|message|><|end|><|start|>assistant";
  for (const json& fields : {json{{"enable_thinking", false}},
                             {{"reasoning_effort", "none"}},
                             {{"thinking", {{"type", "disabled"}}}},
                             {{"chat_template_kwargs", {{"enable_thinking", false}}}}}) {
    const std::string prompt = app.Ok("/apply-template", ThoughtfulChat(fields))["prompt"];
    EXPECT_THAT(prompt, EndsWith("<|start|>assistant" + analysis)) << fields;
  }
  EXPECT_THAT(std::string(app.Ok("/apply-template", ThoughtfulChat(json::object()))["prompt"]),
              EndsWith("<|end|><|start|>assistant"));
}

}  // namespace
}  // namespace longspec::server
