// SPDX-License-Identifier: Apache-2.0
//
// Ollama's API over a tiny random model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/testing/app_fixture.h"

namespace longspec::server {
namespace {

using longspec::testing::AppTest;
using longspec::testing::JsonOf;
using nlohmann::json;
using ::testing::HasSubstr;

std::vector<json> LinesOf(const HttpResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.content_type, "application/x-ndjson");
  std::vector<json> lines;
  for (size_t begin = 0; begin < response.body.size();) {
    const size_t end = response.body.find('\n', begin);
    lines.push_back(json::parse(response.body.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

class OllamaTest : public AppTest {
 protected:
  static json Options(json more = json::object()) {
    json options = {
        {"num_predict", 12}, {"seed", 7}, {"temperature", 0.8}, {"num_ctx", 4096}, {"num_gpu", 0}};
    options.update(more);
    return options;
  }
  std::string MessageOfError(const HttpResponse& response) {
    EXPECT_EQ(response.status, 400) << response.body;
    return JsonOf(response)["error"];
  }
};

TEST_F(OllamaTest, WhatIsThere) {
  Serve({.model_names = {"little"}});
  EXPECT_TRUE(JsonOf(Get("/api/version"))["version"].is_string());
  const json tags = JsonOf(Get("/api/tags"))["models"][0];
  EXPECT_EQ(tags["name"], "little");
  EXPECT_EQ(tags["details"]["format"], "gguf");
  EXPECT_EQ(std::string(tags["digest"]).size(), 64U);
  EXPECT_EQ(JsonOf(Get("/api/ps"))["models"][0]["model"], "little");
  const json show = Ok("/api/show", {{"model", "little"}});
  EXPECT_EQ(show["model_info"]["llama.context_length"], 4096);
  EXPECT_EQ(show["capabilities"], json::array({"completion"}));
}

TEST_F(OllamaTest, AChatIsThatOfOtherApis) {
  Serve();
  const json messages = json::array({{{"role", "user"}, {"content", "the sea"}}});
  const std::string expected =
      Ok("/v1/chat/completions", Chat("the sea"))["choices"][0]["message"]["content"];
  const json body = {{"model", "any"}, {"messages", messages}, {"options", Options()}, {"keep_alive", "5m"}};
  std::string said;
  const std::vector<json> lines = LinesOf(Post("/api/chat", body));
  for (const json& line : lines) {
    said += line["message"]["content"].get<std::string>();
    EXPECT_EQ(line["done"], &line == &lines.back());
    EXPECT_EQ(line["message"]["role"], "assistant");
  }
  EXPECT_EQ(said, expected);
  const json& last = lines.back();
  EXPECT_EQ(last["done_reason"], "length");
  EXPECT_EQ(last["eval_count"], 12);
  EXPECT_GT(last["prompt_eval_count"], 5);
  for (const char* duration : {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"})
    EXPECT_TRUE(last[duration].is_number_integer()) << duration;
  json whole = body;
  whole["stream"] = false;
  EXPECT_EQ(Ok("/api/chat", whole)["message"]["content"], expected);
}

TEST_F(OllamaTest, APromptIsAChatUnlessItIsRaw) {
  Serve();
  json body = {{"prompt", "the sea"}, {"stream", false}, {"options", Options()}};
  EXPECT_EQ(Ok("/api/generate", body)["response"],
            Ok("/v1/chat/completions", Chat("the sea"))["choices"][0]["message"]["content"]);
  body["raw"] = true;
  EXPECT_EQ(Ok("/api/generate", body)["response"],
            Ok("/v1/completions", Text("the sea", {{"ignore_eos", false}}))["choices"][0]["text"]);
  std::string said;
  body["stream"] = true;
  for (const json& line : LinesOf(Post("/api/generate", body))) said += line["response"].get<std::string>();
  body["stream"] = false;
  EXPECT_EQ(said, Ok("/api/generate", body)["response"]);
}

TEST_F(OllamaTest, NothingAskedLoads) {
  Serve();
  const json chat = Ok("/api/chat", {{"model", "any"}, {"messages", json::array()}});
  EXPECT_EQ(chat["done_reason"], "load");
  EXPECT_EQ(Ok("/api/generate", {{"model", "any"}})["done"], true);
}

TEST_F(OllamaTest, MistakesAreNamed) {
  Serve();
  const json messages = json::array({{{"role", "user"}, {"content", "hi"}, {"images", {"aGk="}}}});
  EXPECT_THAT(MessageOfError(Post("/api/chat", {{"messages", messages}})), HasSubstr("messages[0].images"));
  EXPECT_THAT(MessageOfError(Post("/api/generate", {{"prompt", "a"}, {"format", 5}})), HasSubstr("format"));
  EXPECT_THAT(MessageOfError(Post("/api/generate", {{"prompt", "a"}, {"options", {{"mirostat", 2}}}})),
              HasSubstr("mirostat"));
  EXPECT_THAT(MessageOfError(Post("/api/generate", {{"prompt", "a"}, {"suffix", "b"}})),
              HasSubstr("infill is not supported"));
  EXPECT_THAT(MessageOfError(Post("/api/chat", {{"messages", "hi"}})), HasSubstr("messages"));
  EXPECT_THAT(MessageOfError(Post("/api/generate", {{"prompt", "a"}, {"options", {{"n", 2}}}})),
              HasSubstr("n is"));
  EXPECT_THAT(MessageOfError(Post("/api/generate", {{"prompt", {"a", "b"}}, {"raw", true}})),
              HasSubstr("prompt is not supported"));
  EXPECT_THAT(MessageOfError(Post("/api/generate", {{"prompt", "a"}, {"raw", true}, {"logprobs", 2}})),
              HasSubstr("logprobs"));
}

}  // namespace
}  // namespace longspec::server
