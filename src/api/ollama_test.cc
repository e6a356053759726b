// SPDX-License-Identifier: Apache-2.0
//
// Requests and answers in Ollama's form.
#include "api/ollama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "api/fields.h"
#include "api/shared_fields.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

Request OllamaAccepted(OllamaRoute route, const std::string& body, bool has_template = true) {
  auto parsed = ParseOllamaRequest(route, Json::parse(body), OpenAiDefaults(), has_template);
  if (const auto* error = std::get_if<Error>(&parsed)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<Request>(std::move(parsed));
}

TEST(Ollama, OptionsAreThoseOfOtherApis) {
  const Request request = OllamaAccepted(OllamaRoute::kChat, R"({"model": "m", "messages": [
      {"role": "user", "content": "hi"}], "format": {"type": "object"}, "think": false, "options": {
      "num_predict": 5, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "repeat_penalty": 1.5, "repeat_last_n": 9,
      "stop": ["x"], "seed": 4, "num_ctx": 512, "num_thread": 4}})");
  EXPECT_TRUE(request.wishes.stream);
  EXPECT_EQ(request.generation.n_predict, 5);
  EXPECT_EQ(request.generation.sampling.top_k, 3);
  EXPECT_EQ(request.generation.sampling.repeat_last_n, 9);
  EXPECT_EQ(request.generation.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(request.generation.grammar.kind, GrammarText::Kind::kJsonSchema);
  EXPECT_THAT(request.unknown, ::testing::IsEmpty());
  EXPECT_THAT(request.generation.template_variables, ::testing::HasSubstr("enable_thinking"));
}

TEST(Ollama, ResultsBelongToCallsInTheirOrder) {
  const Request request = OllamaAccepted(OllamaRoute::kChat, R"({"messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}},
                                                          {"function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "tool_name": "f", "content": "one"}, {"role": "tool", "content": "two"}]})");
  ASSERT_EQ(request.generation.messages.size(), 4U);
  EXPECT_THAT(request.generation.messages[1].more, ::testing::HasSubstr("call_1"));
  EXPECT_THAT(request.generation.messages[2].more, ::testing::HasSubstr("call_0"));
  EXPECT_THAT(request.generation.messages[3].more, ::testing::HasSubstr("call_1"));
}

TEST(Ollama, WhatAPromptIs) {
  const auto generate = [](const std::string& body, bool has_template = true) {
    return OllamaAccepted(OllamaRoute::kGenerate, body, has_template);
  };
  const Request chat = generate(R"({"prompt": "hi", "system": "Be brief."})");
  ASSERT_EQ(chat.generation.messages.size(), 2U);
  EXPECT_EQ(chat.generation.messages[0].role, "system");
  EXPECT_EQ(generate(R"({"prompt": "hi", "raw": true})").generation.prompt, "hi");
  EXPECT_EQ(generate(R"({"prompt": "hi"})", false).generation.prompt, "hi");
  EXPECT_EQ(generate(R"({"prompt": "hi", "raw": true})").generation.n_predict, -1);
  const Request hole = generate(R"({"prompt": "", "suffix": "end", "stream": false})");
  ASSERT_TRUE(hole.infill.has_value());
  EXPECT_EQ(hole.infill->suffix, "end");
  EXPECT_FALSE(hole.wishes.stream);
}

TEST(Ollama, ACallIsToldOfAsAWhole) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {
      "type": "object", "properties": {"a": {"type": "integer"}}}}}])";
  const Request request = OllamaAccepted(
      OllamaRoute::kChat, R"({"messages": [{"role": "user", "content": "hi"}], )" + tools + "}");
  FormParts parts{.head = {.id = "1", .model = "m"},
                  .request = std::make_shared<const Request>(request),
                  .reading = {.calls = chat::CallFormOf(chat::ToolFormat::kHermes, request.tools)}};
  const auto form = MakeOllamaForm(OllamaRoute::kChat, parts);
  EXPECT_FALSE(form->has_events());
  std::string lines =
      form->OnPiece({.index = 0, .text = "<tool_call>\n{\"name\": \"f\", ", .tokens = {}, .timings = {}});
  lines += form->OnPiece(
      {.index = 0, .text = "\"arguments\": {\"a\": 1}}\n</tool_call>", .tokens = {}, .timings = {}});
  EXPECT_EQ(lines, "");
  FinishedAnswer answer;
  answer.result.finish_reason = FinishReason::kStop;
  lines = form->OnAnswerEnd(0, answer);
  const Json first = Json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(first["message"]["tool_calls"][0]["function"]["arguments"], (Json{{"a", 1}}));
  EXPECT_EQ(first["done"], false);
}

TEST(Ollama, ThoughtsHaveAPlaceOfTheirOwn) {
  FormParts parts{.head = {.id = "1", .model = "m"},
                  .request = {},
                  .reading = {.thinking = chat::ThinkingForm{.tags = {"<think>", "</think>"}}}};
  FinishedAnswer answer;
  answer.result.text = "<think>\nhm, so\n</think>\n\nYes.";
  const auto place = [](const Json& line, OllamaRoute route) {
    return route == OllamaRoute::kChat ? line["message"] : line;
  };
  for (const OllamaRoute route : {OllamaRoute::kChat, OllamaRoute::kGenerate}) {
    const char* said = route == OllamaRoute::kChat ? "content" : "response";
    const Json whole = place(Json::parse(MakeOllamaForm(route, parts)->Whole(std::vector{answer})), route);
    EXPECT_EQ(whole["thinking"], "hm, so");
    EXPECT_EQ(whole[said], "Yes.");
    const auto form = MakeOllamaForm(route, parts);
    std::string lines, thoughts, text;
    for (const char c : answer.result.text)
      lines += form->OnPiece({.index = 0, .text = {&c, 1}, .tokens = {}, .timings = {}});
    std::istringstream stream(lines + form->OnAnswerEnd(0, answer));
    for (std::string line; std::getline(stream, line);) {
      const Json piece = place(Json::parse(line), route);
      thoughts += piece.value("thinking", "");
      text += piece.value(said, "");
    }
    EXPECT_EQ(thoughts, "hm, so");
    EXPECT_EQ(text, "Yes.");
  }
}

}  // namespace
}  // namespace longspec::api
