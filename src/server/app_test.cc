// SPDX-License-Identifier: Apache-2.0
//
// The server without sockets, over a tiny random model.
#include "server/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "server/testing/app_fixture.h"

namespace longspec::server {
namespace {

using longspec::testing::AppTest;
using longspec::testing::EventsOf;
using longspec::testing::ExpectSoon;
using longspec::testing::FakeReply;
using longspec::testing::JsonOf;
using longspec::testing::SendTo;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(AppTest, HealthSaysWhatStateItIsIn) {
  Start();
  const json loading = Error(Get("/health"), 503);
  EXPECT_EQ(loading["message"], "Loading model");
  EXPECT_EQ(loading["type"], "unavailable_error");
  Error(Get("/v1/models"), 503);
  Error(Post("/v1/chat/completions", Chat("hi")), 503);
  ASSERT_TRUE(app_->SetEngine(Load()).ok());
  EXPECT_EQ(JsonOf(Get("/health"))["status"], "ok");
  EXPECT_EQ(JsonOf(Get("/v1/health"))["status"], "ok");
  app_->BeginDrain();
  Error(Get("/health"), 503);
  Error(Post("/v1/chat/completions", Chat("hi")), 503);
}

// The names that a model is served under, in the lists of both APIs; without one it has its file's.
TEST_F(AppTest, Models) {
  Serve({.model_names = {"little", "small"}});
  const json list = JsonOf(Get("/v1/models"));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "little");
  EXPECT_EQ(list["data"][0]["meta"]["n_vocab"], 384);
  EXPECT_EQ(list["models"][0]["name"], "little");
  EXPECT_EQ(JsonOf(Get("/models")), list);
  EXPECT_EQ(list["data"][0]["aliases"], json::array({"little", "small"}));
  for (const char* name : {"little", "small"})
    EXPECT_EQ(JsonOf(Get("/v1/models/" + std::string(name)))["id"], "little");
  Error(Get("/v1/models/big"), 404);
  // Without a name of its own it has its file's, and not that which the file says of itself.
  Serve();
  EXPECT_EQ(JsonOf(Get("/v1/models"))["data"][0]["id"], "app_test.gguf");
  EXPECT_EQ(JsonOf(Get("/props"))["model_alias"], "app_test.gguf");
}

TEST_F(AppTest, TheVersionNeedsNoKey) {
  Serve({.api_keys = {"one"}});
  EXPECT_EQ("longspec " + std::string(JsonOf(Get("/version"))["version"]),
            JsonOf(Get("/props", {{"X-Api-Key", "one"}}))["build_info"]);
}

TEST_F(AppTest, ThePageNeedsNoKeyAndNothingFromElsewhere) {
  Start({.api_keys = {"one"}});
  const HttpResponse page = Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_TRUE(page.body.starts_with("<!DOCTYPE html>") && page.body.ends_with("</html>\n"));
  // Names of namespaces are no addresses that are visited.
  size_t n_addresses = 0;
  for (size_t at = 0; (at = page.body.find("://", at)) != std::string::npos; ++at) ++n_addresses;
  EXPECT_EQ(n_addresses, 1U);
  EXPECT_THAT(page.body, HasSubstr("http://www.w3.org/2000/svg"));
  std::string policy;
  for (const auto& [name, value] : page.headers) {
    if (name == "Content-Security-Policy") policy = value;
  }
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("http")));
  Serve({.page = false});
  Error(Get("/"), 404);
}

TEST_F(AppTest, RoutesAndMethods) {
  Serve();
  EXPECT_EQ(Error(Get("/nothing"), 404)["type"], "not_found_error");
  const HttpResponse other = Get("/v1/chat/completions");
  EXPECT_THAT(std::string(Error(other, 405)["message"]), HasSubstr("takes POST"));
  using Header = std::pair<std::string, std::string>;
  EXPECT_THAT(other.headers, ::testing::Contains(Header("Allow", "POST, OPTIONS")));
  const HttpResponse posted = Post("/metrics", {});
  Error(posted, 405);
  EXPECT_THAT(posted.headers, ::testing::Contains(Header("Allow", "GET, HEAD, OPTIONS")));
  Error(Post("/health/", {}), 404);
  const HttpResponse health = Post("/health", {});
  EXPECT_THAT(std::string(Error(health, 405)["message"]), HasSubstr("/health takes GET, HEAD, not POST"));
  EXPECT_THAT(health.headers, ::testing::Contains(Header("Allow", "GET, HEAD, OPTIONS")));
}

// Also where nothing is, an API's clients read its errors.
TEST_F(AppTest, ErrorsLookLikeThoseOfTheApiBesideThem) {
  Serve();
  EXPECT_EQ(json::parse(Get("/api/nothing").body)["error"], "there is nothing at /api/nothing");
  EXPECT_EQ(json::parse(Get("/v1/messages/batches").body)["type"], "error");
  EXPECT_EQ(json::parse(Get("/v1/nothing").body)["error"]["code"], 404);
  EXPECT_EQ(json::parse(Get("/v1/messages").body)["type"], "error");
}

TEST_F(AppTest, KeysAreAskedForEverywhereButWhereHealthIs) {
  Serve({.api_keys = {"one", "two"}});
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/v1/models").status, 200);
  for (const Headers& bad : std::vector<Headers>{{},
                                                 {{"Authorization", "Bearer three"}},
                                                 {{"Authorization", "one"}},
                                                 {{"Authorization", "Bearer "}},
                                                 {{"Authorization", "Basic one"}},
                                                 {{"X-Api-Key", ""}}}) {
    EXPECT_EQ(Error(Post("/tokenize", {{"content", "a"}}, bad), 401)["type"], "authentication_error");
    Error(Get("/nothing", bad), 401);
  }
  for (const Headers& good : std::vector<Headers>{{{"Authorization", "Bearer two"}},
                                                  {{"authorization", "bearer two"}},
                                                  {{"Authorization", "BEARER  two"}},
                                                  {{"x-api-key", "one"}},
                                                  // A proxy's, and one that the client always shows.
                                                  {{"Authorization", "Basic dTpw"}, {"X-Api-Key", "one"}},
                                                  {{"Authorization", "Bearer two"}, {"X-Api-Key", "dummy"}},
                                                  {{"Authorization", "Bearer dummy"}, {"X-Api-Key", "one"}}})
    EXPECT_EQ(Post("/tokenize", {{"content", "a"}}, good).status, 200);
}

TEST_F(AppTest, APrefixOfAllPaths) {
  Serve({.api_prefix = "/llm"});
  EXPECT_EQ(Get("/llm/health").status, 200);
  EXPECT_EQ(Post("/llm/tokenize", {{"content", "a"}}).status, 200);
}

TEST_F(AppTest, TokensAndBack) {
  Serve();
  // Another server's route of this name has other fields.
  EXPECT_EQ(Error(Post("/tokenize", {{"prompt", "a"}}), 400)["param"], "prompt");
  const json tokens = Ok("/tokenize", {{"content", "the sea"}})["tokens"];
  EXPECT_FALSE(tokens.empty());
  EXPECT_EQ(Ok("/detokenize", {{"tokens", tokens}})["content"], "the sea");
  const json pieces = Ok("/tokenize", {{"content", "\xC3\xA9"}, {"with_pieces", true}})["tokens"];
  EXPECT_EQ(pieces[0]["piece"], json::array({0xC3}));
  // What would be an answer of hundreds of megabytes.
  std::string much;
  for (int i = 0; i < 600'000; ++i) much += "\xC3\xA9";
  EXPECT_EQ(Error(Post("/tokenize", {{"content", much}, {"with_pieces", true}}), 413)["param"], "content");
  Error(Post("/detokenize", {{"tokens", json::array({-1})}}), 400);
  Error(Post("/detokenize", {{"tokens", "x"}}), 400);
  EXPECT_EQ(Ok("/detokenize", {{"tokens", json::array({2147483647})}})["content"], "");
  const json prompt = Ok("/apply-template", Chat("hi"))["prompt"];
  EXPECT_THAT(std::string(prompt), HasSubstr("<|im_start|>user\nhi<|im_end|>"));
}

TEST_F(AppTest, AChatCompletion) {
  Serve({.model_names = {"little"}});
  const json answer = Ok("/v1/chat/completions", Chat("the sea"));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "little");
  EXPECT_EQ(answer["seed"], 7);
  EXPECT_EQ(answer["usage"]["completion_tokens"], answer["timings"]["predicted_n"]);
  EXPECT_GT(answer["usage"]["prompt_tokens"], 5);
  EXPECT_TRUE(answer["usage"]["completion_tokens_details"].contains("accepted_prediction_tokens"));
  EXPECT_EQ(answer["choices"].size(), 1U);
  EXPECT_TRUE(answer["speculation"]["rounds"].is_number());
  EXPECT_THAT(std::string(answer["system_fingerprint"]), HasSubstr("longspec-"));
  // Again, and elsewhere: the same text, and a prompt that is known.
  const json again = Ok("/chat/completions", Chat("the sea"));
  EXPECT_EQ(again["choices"], answer["choices"]);
  EXPECT_GT(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

// The parts of a streamed chat, by choice.
struct Streamed {
  std::map<int, std::string> text, finish;
  int n_done = 0;
  json usage, last;
};
Streamed ReadStream(const std::string& body) {
  Streamed streamed;
  for (const json& event : EventsOf(body)) {
    if (event.is_string()) {
      EXPECT_EQ(event, "[DONE]");
      ++streamed.n_done;
      continue;
    }
    EXPECT_EQ(streamed.n_done, 0);
    for (const json& choice : event["choices"]) {
      const int index = choice["index"];
      const json& text = choice.contains("delta") ? choice["delta"].value("content", json()) : choice["text"];
      if (text.is_string()) streamed.text[index] += text.get<std::string>();
      if (choice["finish_reason"].is_string()) streamed.finish[index] = choice["finish_reason"];
    }
    if (event.contains("usage")) streamed.usage = event["usage"];
    streamed.last = event;
  }
  return streamed;
}

// Prompts that are longer together than the context are kept beside it, as much as --cache-ram says.
TEST_F(AppTest, EarlierPromptsAreKeptBesideTheContext) {
  const auto tokens = [](int n, int which) {
    json prompt = json::array();
    for (int i = 0; i < n; ++i) prompt.push_back(40 + (i * i + 7 * i * which + which) % 80);
    return prompt;
  };
  const auto known = [&](const json& prompt) {
    return Ok("/completion", {{"prompt", prompt},
                              {"n_predict", 2},
                              {"speculative", {{"enabled", false}}}})["timings"]["cache_n"]
        .get<int>();
  };
  const auto serve = [&](const ModelOptions& options) {
    WaitForRest();
    app_ = std::make_unique<App>(AppOptions{}, &log_);
    ASSERT_TRUE(app_->SetEngine(Load(options)).ok());
  };
  Start();
  for (const int cache_ram : {64, 0}) {
    serve({.ctx_size = 2048, .cache_ram = cache_ram});
    for (int which = 0; which < 3; ++which) EXPECT_LT(known(tokens(1000 + 60 * which, which)), 5);
    EXPECT_EQ(known(tokens(1000, 0)), cache_ram > 0 ? 999 : 0);
    EXPECT_EQ(known(tokens(1000, 0)), 999);
  }
  serve({.ctx_size = 2048, .cache_prompt = false});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(known(tokens(60, 0)), 0);
  // In a small context what was just used is there, too.
  for (const int cache_ram : {64, 0}) {
    serve({.ctx_size = 512, .cache_ram = cache_ram});
    for (int which = 0; which < 3; ++which) {
      EXPECT_LT(known(tokens(76, which)), 5);
      EXPECT_EQ(known(tokens(76, which)), 75);
      EXPECT_EQ(known(tokens(76, which)), 75);
    }
    EXPECT_EQ(known(tokens(76, 1)), 75);
    EXPECT_EQ(known(tokens(76, 0)) == 75, cache_ram > 0);
  }
}

TEST_F(AppTest, AStreamSaysWhatTheWholeAnswerSays) {
  Serve();
  for (const bool chat : {true, false}) {
    const std::string target = chat ? "/v1/chat/completions" : "/v1/completions";
    const json body = chat ? Chat("the sea", {{"n", 3}}) : Text("the sea", {{"n", 3}});
    const json whole = Ok(target, body);
    json streaming = body;
    streaming["stream"] = true;
    streaming["stream_options"] = {{"include_usage", true}};
    const auto reply = SendTo(*app_, "POST", target, streaming.dump());
    const HttpResponse response = reply->Wait();
    EXPECT_EQ(response.content_type, "text/event-stream");
    EXPECT_EQ(reply->idle_seconds(), 30);
    const Streamed streamed = ReadStream(response.body);
    EXPECT_EQ(streamed.n_done, 1);
    ASSERT_EQ(whole["choices"].size(), 3U);
    for (const json& choice : whole["choices"]) {
      const int index = choice["index"];
      const std::string text = chat ? choice["message"]["content"] : choice["text"];
      EXPECT_EQ(streamed.text.count(index) == 0 ? "" : streamed.text.at(index), text) << index;
      EXPECT_EQ(streamed.finish.at(index), choice["finish_reason"]);
    }
    EXPECT_EQ(streamed.last["choices"], json::array());
    EXPECT_EQ(streamed.usage["completion_tokens"], whole["usage"]["completion_tokens"]);
    if (!chat) continue;
    const auto events = EventsOf(response.body);
    EXPECT_EQ(events[0]["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", nullptr}}));
  }
}

// The loop has the first event before the thread that submits has sent the head.
TEST_F(AppTest, AHeadGoesBeforeTheFirstEvent) {
  Serve();
  const std::string body = Chat("hello", {{"stream", true}}).dump();
  const auto reply = SendTo(*app_, "POST", "/v1/chat/completions", body, {},
                            {.before_begin = std::chrono::milliseconds(200)});
  const HttpResponse response = reply->Wait();
  EXPECT_EQ(response.content_type, "text/event-stream");
  EXPECT_EQ(EventsOf(response.body).back(), "[DONE]");
}

TEST_F(AppTest, ChancesBelongToTheTextAndDoNotDependOnSpeculation) {
  Serve();
  const json fields = {{"logprobs", true}, {"top_logprobs", 3}, {"max_tokens", 20}, {"ignore_eos", true}};
  const json answer = Ok("/v1/chat/completions", Chat("the sea the sea", fields));
  const json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_GT(content.size(), 0U);
  std::string bytes;
  for (const json& token : content) {
    for (const json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
    EXPECT_EQ(token["top_logprobs"].size(), 3U);
    EXPECT_GE(token["top_logprobs"][0]["logprob"], token["logprob"]);
    EXPECT_LE(token["logprob"], 0.0);
  }
  json plain = fields;
  plain["speculative"] = {{"enabled", false}};
  const json without = Ok("/v1/chat/completions", Chat("the sea the sea", plain));
  EXPECT_EQ(without["choices"], answer["choices"]);
  EXPECT_EQ(without["timings"]["draft_n"], 0);
  // A stream has the same chances.
  json streaming = fields;
  streaming["stream"] = true;
  const HttpResponse response = Post("/v1/chat/completions", Chat("the sea the sea", streaming));
  json streamed = json::array();
  for (const json& event : EventsOf(response.body)) {
    if (!event.is_object()) continue;
    for (const json& choice : event["choices"]) {
      if (!choice["logprobs"].is_object()) continue;
      for (const json& token : choice["logprobs"]["content"]) streamed.push_back(token);
    }
  }
  EXPECT_EQ(streamed, content);
}

TEST_F(AppTest, BiasesOfLongTextsAreLimited) {
  Serve();
  json biases = json::array();
  for (int i = 0; i < 3; ++i) biases.push_back({std::string(50'000, '\x01'), 1.0});
  const json body = {{"prompt", "the sea"}, {"n_predict", 1}, {"logit_bias", biases}};
  EXPECT_EQ(Error(Post("/completion", body), 400)["param"], "logit_bias");
  // Also one of no token is refused before anything is sent.
  for (const bool stream : {false, true}) {
    const json unknown = Text("the sea", {{"stream", stream}, {"logit_bias", {{"99999999", 1}}}});
    const json error = Error(Post("/v1/completions", unknown), 400);
    EXPECT_EQ(error["param"], "logit_bias");
    EXPECT_THAT(std::string(error["message"]), HasSubstr("token 99999999 is not in the vocabulary"));
  }
}

TEST_F(AppTest, SlotsShowNothingThatIsSomebodysOwn) {
  Serve({.scheduler = {.parallel = 1}});
  Ok("/v1/completions", Text("the sea", {{"max_tokens", 1}, {"logit_bias", {{"5", 1}}}, {"stop", "secret"}}));
  const json slots = JsonOf(Get("/slots"));
  EXPECT_EQ(slots[0]["params"]["n_predict"], 1);
  EXPECT_THAT(slots.dump(), Not(HasSubstr("secret")));
  EXPECT_THAT(slots.dump(), Not(HasSubstr("logit_bias")));
}

TEST_F(AppTest, ManyTokensAreNotWrittenAsText) {
  Serve();
  const json tokens(std::vector<int>(600'000, 1));
  EXPECT_EQ(Error(Post("/detokenize", {{"tokens", tokens}}), 413)["param"], "tokens");
}

TEST_F(AppTest, AStopStringEndsTextAndChances) {
  Serve();
  const json whole = Ok("/v1/completions", Text("the sea", {{"max_tokens", 40}, {"logprobs", 0}}));
  const std::string text = whole["choices"][0]["text"];
  ASSERT_GT(text.size(), 12U);
  // Random weights write all kinds of bytes: a stop string is of plain ones.
  const auto plain = [&](size_t i) { return text[i] > ' ' && text[i] < 0x7F; };
  size_t begin = 6;
  while (begin + 2 < text.size() && !(plain(begin) && plain(begin + 1))) ++begin;
  const std::string stop = text.substr(begin, 2);
  ASSERT_TRUE(plain(begin)) << text;
  const size_t at = text.find(stop);
  const json cut =
      Ok("/v1/completions", Text("the sea", {{"max_tokens", 40}, {"stop", stop}, {"logprobs", 0}}));
  EXPECT_EQ(cut["choices"][0]["text"], text.substr(0, at));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "stop");
  for (const json& offset : cut["choices"][0]["logprobs"]["text_offset"]) EXPECT_LT(offset, at);
  const json native = Ok("/completion", Text("the sea", {{"n_predict", 40}, {"stop", json::array({stop})}}));
  EXPECT_EQ(native["content"], text.substr(0, at));
  EXPECT_EQ(native["stop_type"], "word");
  EXPECT_EQ(native["stopping_word"], stop);
}

TEST_F(AppTest, OffsetsOfTokensCountCharacters) {
  Serve();
  int n_after_longer_ones = 0;
  for (const bool stream : {false, true}) {
    const json fields = {{"max_tokens", 60}, {"logprobs", 0}, {"stream", stream}};
    const HttpResponse response = Post("/v1/completions", Text("the sea", fields));
    std::string text;
    std::vector<std::pair<size_t, std::string>> tokens;
    for (const json& event : stream ? EventsOf(response.body) : std::vector<json>{JsonOf(response)}) {
      if (!event.contains("choices") || event["choices"].empty()) continue;
      const json& choice = event["choices"][0];
      text += choice["text"];
      if (choice["logprobs"].is_null()) continue;
      for (size_t i = 0; i < choice["logprobs"]["tokens"].size(); ++i)
        tokens.emplace_back(choice["logprobs"]["text_offset"][i], choice["logprobs"]["tokens"][i]);
    }
    std::vector<size_t> begins;  // of characters, in bytes
    for (size_t i = 0; i < text.size(); ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) begins.push_back(i);
    }
    ASSERT_EQ(tokens.size(), 60U);
    for (const auto& [offset, token] : tokens) {
      ASSERT_LE(offset, begins.size());
      const bool plain = std::ranges::all_of(token, [](char c) { return c > 0; });
      if (!plain || token.empty()) continue;
      // It also has what bytes before it, which make no character, are shown as.
      if (text.substr(begins.at(offset)).starts_with("\xEF\xBF\xBD")) continue;
      EXPECT_EQ(text.substr(begins.at(offset), token.size()), token);
      n_after_longer_ones += begins[offset] > offset ? 1 : 0;
    }
  }
  EXPECT_GT(n_after_longer_ones, 2);
}

TEST_F(AppTest, LlamaCppsCompletion) {
  Serve();
  const json answer =
      Ok("/completion", Text("the sea", {{"n_predict", 9}, {"return_tokens", true}, {"n_probs", 2}}));
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["tokens_predicted"], 9);
  EXPECT_EQ(answer["tokens"].size(), 9U);
  EXPECT_EQ(answer["generation_settings"]["seed"], 7);
  EXPECT_THAT(std::string(answer["prompt"]), HasSubstr("the sea"));
  EXPECT_EQ(answer["completion_probabilities"][0]["top_logprobs"].size(), 2U);
  const HttpResponse stream = Post("/completion", Text("the sea", {{"n_predict", 9}, {"stream", true}}));
  const auto events = EventsOf(stream.body);
  std::string text;
  json streamed = json::array();
  for (const json& event : events) {
    text += event["content"].get<std::string>();
    for (const json& token : event["tokens"]) streamed.push_back(token);
  }
  EXPECT_EQ(text, answer["content"]);
  EXPECT_EQ(streamed, answer["tokens"]);
  EXPECT_EQ(events.back()["stop"], true);
  EXPECT_EQ(events.back()["tokens_predicted"], 9);
  const json picked =
      Ok("/completion",
         Text("the sea", {{"n_predict", 4}, {"response_fields", {"content", "generation_settings/seed"}}}));
  EXPECT_EQ(picked.size(), 2U);
  EXPECT_EQ(picked["generation_settings/seed"], 7);
  EXPECT_EQ(answer["truncated"], false);
  EXPECT_EQ(answer["generation_settings"]["n_ctx"], 4096);
  // A mix of tokens and texts is the text that they stand for.
  const json tokens = Ok("/tokenize", {{"content", "the"}})["tokens"];
  json mixed = tokens;
  mixed.push_back(" sea");
  EXPECT_EQ(Ok("/completion", Text("", {{"prompt", mixed}, {"n_predict", 0}}))["prompt"], "the sea");
}

TEST_F(AppTest, ProgressOfAPromptBeginsWithWhatIsKnownAndEndsWithAllOfIt) {
  Serve();
  std::string document;
  for (int i = 0; i < 60; ++i) document += "word" + std::to_string(i) + " ";
  for (const char* target : {"/v1/completions", "/completion"}) {
    const json fields = {{"stream", true}, {"return_progress", true}, {"max_tokens", 2}};
    const HttpResponse response = Post(target, Text(document, fields));
    std::vector<json> progress;
    for (const json& event : EventsOf(response.body)) {
      if (event.is_object() && event.contains("prompt_progress"))
        progress.push_back(event["prompt_progress"]);
    }
    ASSERT_GE(progress.size(), 2U) << response.body;
    EXPECT_EQ(progress.front()["processed"], progress.front()["cache"]);
    EXPECT_EQ(progress.back()["processed"], progress.back()["total"]);
    document = "other " + document;  // known to nobody
  }
}

TEST_F(AppTest, APredictionIsDraftedFromAndChangesNothing) {
  Serve();
  const json fields = {{"max_tokens", 40}, {"ignore_eos", true}, {"temperature", 0}};
  const json alone = Ok("/v1/chat/completions", Chat("the sea", fields));
  json predicted = fields;
  predicted["prediction"] = {{"type", "content"}, {"content", alone["choices"][0]["message"]["content"]}};
  predicted["speculative"] = {{"drafters", "ngram"}, {"max_rows", 16}};
  predicted["return_token_source"] = true;
  const json answer = Ok("/v1/chat/completions", Chat("the sea", predicted));
  EXPECT_EQ(answer["choices"][0]["message"], alone["choices"][0]["message"]);
  int64_t accepted = 0;
  for (const json& drafter : answer["speculation"]["by_drafter"]) {
    if (drafter["name"] == "prediction") accepted = drafter["accepted"];
  }
  EXPECT_GT(accepted, 0) << answer.dump();
  EXPECT_GE(answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], accepted);
  EXPECT_THAT(answer["choices"][0]["token_sources"].dump(), HasSubstr("\"prediction\""));
}

TEST_F(AppTest, WhatIsWrongIsSaidByName) {
  Serve();
  EXPECT_EQ(Error(Post("/v1/chat/completions", Chat("x", {{"temperature", 9}})), 400)["param"],
            "temperature");
  EXPECT_EQ(
      Error(Post("/v1/chat/completions", Chat("x", {{"tools", {{{"type", "function"}}}}})), 400)["param"],
      "tools[0].function");
  EXPECT_THAT(
      std::string(Error(Post("/v1/chat/completions", Chat("x", {{"speculative", {{"drafters", "magic"}}}})),
                        400)["message"]),
      HasSubstr("ngram"));
  Error(SendTo(*app_, "POST", "/v1/chat/completions", "{nonsense")->Wait(), 400);
  Error(SendTo(*app_, "POST", "/v1/chat/completions", "\xFF\xFE")->Wait(), 400);
  Error(SendTo(*app_, "POST", "/completion", std::string(100000, '['))->Wait(), 413);
  std::string longer;
  for (int i = 0; i < 3000; ++i) longer += "word ";
  const json error = Error(Post("/v1/completions", Text(longer)), 400);
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["n_ctx"], 4096);
  // The words that clients look for.
  EXPECT_THAT(std::string(error["message"]), ::testing::StartsWith("prompt is too long: the prompt has "));
  const HttpResponse refused = Post("/v1/messages", Chat(longer, {{"max_tokens", 5}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(std::string(JsonOf(refused)["error"]["message"]),
              ::testing::MatchesRegex("prompt is too long: [0-9]+ tokens > 4096 maximum"));
  // What has too much of something else is no prompt to cut.
  const json schema = {{"type", "string"}, {"pattern", "^((a{1,100}){1,100}){1,100}$"}};
  EXPECT_EQ(Error(Post("/completion", {{"prompt", "x"}, {"json_schema", schema}}), 400)["type"],
            "invalid_request_error");
  EXPECT_GT(error["n_prompt_tokens"], 4096);
  Error(Post("/completion", {{"prompt", json::array({100000})}}), 400);
}

// A request of Anthropic's API is answered as the chat that it stands for, with its usage counted as theirs.
TEST_F(AppTest, AnthropicsMessages) {
  Serve({.model_names = {"little"}});
  const json body = {
      {"model", "x"},
      {"max_tokens", 12},
      {"seed", 4},
      {"ignore_eos", true},
      {"system",
       {{{"type", "text"}, {"text", "x-anthropic-billing-header: 1"}},
        {{"type", "text"}, {"text", "Be brief."}, {"cache_control", {{"type", "ephemeral"}}}}}},
      {"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "the sea"}}}}}}}};
  const json answer = Ok("/v1/messages", body);
  EXPECT_EQ(answer["type"], "message");
  EXPECT_EQ(answer["model"], "little");
  const json& usage = answer["usage"];
  const int64_t n_prompt =
      usage["input_tokens"].get<int64_t>() + usage["cache_read_input_tokens"].get<int64_t>();
  // It is the chat that it stands for.
  const json chat =
      Ok("/v1/chat/completions",
         {{"max_tokens", 12},
          {"seed", 4},
          {"ignore_eos", true},
          {"messages",
           {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "the sea"}}}}});
  EXPECT_EQ(answer["content"].size(), 1U);
  EXPECT_EQ(answer["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  EXPECT_NE(answer["content"][0]["text"], "");
  EXPECT_EQ(chat["usage"]["prompt_tokens"], n_prompt);
  EXPECT_EQ(Ok("/v1/messages/count_tokens", body)["input_tokens"], n_prompt);
  json streaming = body;
  streaming["stream"] = true;
  const auto events = EventsOf(Post("/v1/messages", streaming).body);
  std::string text, order;
  for (const json& event : events) {
    const std::string type = event["type"];
    if (!order.ends_with(type + " ")) order += type + " ";
    if (type == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, answer["content"][0]["text"]);
  EXPECT_EQ(
      order,
      "message_start content_block_start content_block_delta content_block_stop message_delta message_stop ");
  for (const auto& [change, name] : std::vector<std::pair<json, std::string>>{
           {{{"max_tokens", -2}}, "max_tokens"},
           {{{"tools", {{{"type", "computer_20250124"}}}}}, "tools[0].type"},
           {{{"thinking", {{"type", "deep"}}}}, "thinking"},
           {{{"messages", {{{"role", "tool"}, {"content", "x"}}}}}, "messages[0].role"},
           {{{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}},
            "messages[0].content[0].type"}}) {
    json bad = body;
    bad.update(change);
    const HttpResponse refused = Post("/v1/messages", bad);
    EXPECT_EQ(refused.status, 400) << change;
    const json error = JsonOf(refused);
    EXPECT_EQ(error["type"], "error");
    EXPECT_EQ(error["error"]["type"], "invalid_request_error");
    EXPECT_THAT(std::string(error["error"]["message"]), HasSubstr(name));
  }
}

TEST_F(AppTest, OpenAisResponses) {
  Serve({.model_names = {"little"}});
  const json body = {
      {"model", "x"},
      {"max_output_tokens", 12},
      {"seed", 4},
      {"ignore_eos", true},
      {"instructions", "Be brief."},
      {"reasoning", {{"effort", "medium"}}},
      {"tools", {{{"type", "web_search"}}}},
      {"input", {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "the sea"}}}}}}}};
  const json answer = Ok("/v1/responses", body);
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["status"], "incomplete");
  EXPECT_EQ(answer["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(answer["usage"]["output_tokens"], 12);
  const json chat =
      Ok("/v1/chat/completions",
         {{"max_tokens", 12},
          {"seed", 4},
          {"ignore_eos", true},
          {"messages",
           {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "the sea"}}}}});
  EXPECT_EQ(answer["output"].size(), 1U);
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  json streaming = body;
  streaming["stream"] = true;
  const auto events = EventsOf(Post("/v1/responses", streaming).body);
  std::string text, order;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    const std::string type = events[i]["type"].get<std::string>().substr(9);
    if (!order.ends_with(type + " ")) order += type + " ";
    if (type == "output_text.delta") text += events[i]["delta"].get<std::string>();
  }
  EXPECT_EQ(text, answer["output"][0]["content"][0]["text"]);
  EXPECT_EQ(order,
            "created in_progress output_item.added content_part.added output_text.delta output_text.done "
            "content_part.done output_item.done incomplete ");
  EXPECT_EQ(events.back()["response"]["output"][0]["content"], answer["output"][0]["content"]);
  for (const auto& [change, name] : std::vector<std::pair<json, std::string>>{
           {{{"previous_response_id", "resp_1"}}, "previous_response_id"},
           {{{"input", json::array()}}, "input"},
           {{{"input", 5}}, "input"},
           {{{"input", {{{"type", "computer_call"}}}}}, "input[0].type"},
           {{{"tools", {{{"name", "f"}}}}}, "tools[0].type"},
           {{{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type"}}) {
    json bad = body;
    bad.update(change);
    EXPECT_EQ(Error(Post("/v1/responses", bad), 400)["param"], name);
  }
}

// A function whose arguments random weights can write in a few tokens.
json Toggle(const std::string& name) {
  const json schema = {{"type", "object"},
                       {"properties", {{"state", {{"enum", {"on", "off"}}}}}},
                       {"required", {"state"}},
                       {"additionalProperties", false}};
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", schema}, {"strict", true}}}};
}

TEST_F(AppTest, ToolsAreCalledInEachApi) {
  if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  Serve();
  const json ask = {{"tools", {Toggle("lamp"), Toggle("fan")}},
                    {"tool_choice", "required"},
                    {"parallel_tool_calls", false},
                    {"max_tokens", 400}};
  json two = ask;
  two["n"] = 2;
  const json whole = Ok("/v1/chat/completions", Chat("lamp", two));
  for (const json& choice : whole["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << whole;
    EXPECT_TRUE(choice["message"]["content"].is_null());
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U);
    const json& function = choice["message"]["tool_calls"][0]["function"];
    EXPECT_TRUE(function["name"] == "lamp" || function["name"] == "fan");
    const json arguments = json::parse(function["arguments"].get<std::string>());
    EXPECT_TRUE(arguments["state"] == "on" || arguments["state"] == "off");
  }
  const json& call = whole["choices"][0]["message"]["tool_calls"][0];
  json streaming = two;
  streaming["stream"] = true;
  std::map<int, json> calls;
  const HttpResponse stream = Post("/v1/chat/completions", Chat("lamp", streaming));
  for (const json& event : EventsOf(stream.body)) {
    if (!event.is_object()) continue;
    for (const json& choice : event["choices"]) {
      if (!choice["delta"].contains("tool_calls")) continue;
      const json& delta = choice["delta"]["tool_calls"][0];
      json& told = calls[choice["index"]];
      if (told.is_null()) {
        told = delta["function"];
      } else {
        told["arguments"] =
            told["arguments"].get<std::string>() + delta["function"]["arguments"].get<std::string>();
      }
    }
  }
  for (const int i : {0, 1})
    EXPECT_EQ(calls[i], whole["choices"][static_cast<size_t>(i)]["message"]["tool_calls"][0]["function"]);
  EXPECT_EQ(ReadStream(stream.body).finish.at(0), "tool_calls");
  // Without speculation it is the same call.
  json plain = ask;
  plain["speculative"] = false;
  EXPECT_EQ(
      Ok("/v1/chat/completions", Chat("lamp", plain))["choices"][0]["message"]["tool_calls"][0]["function"],
      call["function"]);

  const json function = Toggle("lamp")["function"];
  const json messages =
      Ok("/v1/messages", {{"max_tokens", 400},
                          {"seed", 7},
                          {"tools", {{{"name", "lamp"}, {"input_schema", function["parameters"]}}}},
                          {"tool_choice", {{"type", "tool"}, {"name", "lamp"}}},
                          {"messages", {{{"role", "user"}, {"content", "lamp"}}}}});
  EXPECT_EQ(messages["stop_reason"], "tool_use") << messages;
  EXPECT_EQ(messages["content"].size(), 1U);
  EXPECT_EQ(messages["content"][0]["type"], "tool_use");
  EXPECT_TRUE(messages["content"][0]["input"].contains("state"));
  json tool = function;
  tool["type"] = "function";
  const json responses = Ok("/v1/responses", {{"max_output_tokens", 400},
                                              {"seed", 7},
                                              {"tools", {tool}},
                                              {"tool_choice", "required"},
                                              {"parallel_tool_calls", false},
                                              {"input", "lamp"}});
  EXPECT_EQ(responses["status"], "completed") << responses;
  EXPECT_EQ(responses["output"].size(), 1U);
  EXPECT_EQ(responses["output"][0]["type"], "function_call");
  EXPECT_EQ(responses["output"][0]["name"], "lamp");
  // What the model is told, it can be asked for.
  EXPECT_THAT(std::string(Ok("/apply-template", Chat("hi", {{"tools", {Toggle("fan")}}}))["prompt"]),
              HasSubstr("\"fan\""));
}

TEST_F(AppTest, FormsOfAnswersAreKeptOrRefused) {
  if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  Serve();
  const json schema = {{"enum", {"yes", "no"}}};
  const json format = {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}};
  const std::string text = Ok("/v1/chat/completions",
                              Chat("?", {{"response_format", format}}))["choices"][0]["message"]["content"];
  EXPECT_TRUE(text == "\"yes\"" || text == "\"no\"") << text;
  EXPECT_EQ(
      Ok("/completion", {{"prompt", "?"}, {"json_schema", {{"const", 7}}}, {"n_predict", 20}})["content"],
      "7");
  const json text_format = {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}}}};
  const std::string told =
      Ok("/v1/responses", {{"input", "?"}, {"text", text_format}})["output"][0]["content"][0]["text"];
  EXPECT_TRUE(told == "\"yes\"" || told == "\"no\"") << told;
  // What cannot be kept is refused by the field that asks for it, before anything is computed.
  const json bad = {{"not", json::object()}};
  json tool = Toggle("f");
  tool["function"]["parameters"] = bad;
  for (const auto& [fields, param] : std::vector<std::pair<json, std::string>>{
           {{{"response_format", {{"type", "json_schema"}, {"schema", bad}}}}, "response_format"},
           {{{"json_schema", bad}}, "json_schema"},
           {{{"grammar", "root ::= a"}}, "grammar"},
           {{{"tools", {tool}}}, "tools"},
           {{{"tools", {Toggle("f")}}, {"grammar", "root ::= \"a\""}}, "tools"}}) {
    EXPECT_EQ(Error(Post("/v1/chat/completions", Chat("x", fields)), 400)["param"], param) << fields;
  }
  EXPECT_EQ(Error(Post("/v1/responses",
                       {{"input", "x"}, {"text", {{"format", {{"type", "json_schema"}, {"schema", bad}}}}}}),
                  400)["param"],
            "text.format");
}

TEST_F(AppTest, ManyAtOnceSayWhatEachSaysAlone) {
  Serve();
  std::vector<json> bodies;
  std::vector<std::string> alone;
  for (int i = 0; i < 16; ++i) {
    bodies.push_back(Text("chapter " + std::to_string(i % 5) + " of the sea",
                          {{"seed", i}, {"max_tokens", 10 + i}, {"temperature", i % 3 == 0 ? 0.0 : 0.9}}));
    alone.push_back(Ok("/v1/completions", bodies.back())["choices"][0]["text"]);
  }
  std::vector<std::shared_ptr<FakeReply>> replies;
  for (const json& body : bodies) replies.push_back(SendTo(*app_, "POST", "/v1/completions", body.dump()));
  for (size_t i = 0; i < replies.size(); ++i)
    EXPECT_EQ(JsonOf(replies[i]->Wait())["choices"][0]["text"], alone[i]) << i;
}

// llama.cpp#13262, #11720: a client that goes away while it waits, in its prompt or while it is written.
TEST_F(AppTest, AClientThatGoesAwayIsCancelledAndOthersGoOn) {
  Serve({.scheduler = {.parallel = 2}});
  const json endless = Text("the sea", {{"max_tokens", 900}, {"stream", true}});
  const auto send = [&](bool hold) {
    return SendTo(*app_, "POST", "/v1/completions", endless.dump(), {}, {.hold = hold});
  };
  const auto other = send(true);
  other->WaitForBytes();
  const auto writing = send(true);
  other->GoOn();
  writing->WaitForBytes();
  const auto queued = send(false);
  queued->WaitForHead();
  queued->GoAway();
  writing->GoAway();
  const HttpResponse rest = other->Wait();
  EXPECT_EQ(ReadStream(rest.body).n_done, 1);
  EXPECT_EQ(ReadStream(rest.body).finish.at(0), "length");
  WaitForRest();
  ExpectSoonZero("longspec:num_requests_running");
  ExpectSoonZero("longspec:num_requests_waiting");
  ExpectSoonZero("longspec:kv_cache_usage_perc");
  const auto n_gone = [&] {
    const std::lock_guard lock(log_mutex_);
    return std::ranges::count_if(
        lines_, [](const std::string& line) { return line.find("\"status\":499") != std::string::npos; });
  };
  ExpectSoon([&] { return n_gone() == 2; }, "lines of clients that are gone");
}

TEST_F(AppTest, AFullQueueSaysTryAgain) {
  Serve({.scheduler = {.parallel = 1}, .most_queued = 1});
  const json endless = Text("the sea", {{"max_tokens", 900}, {"stream", true}});
  const auto writing = SendTo(*app_, "POST", "/v1/completions", endless.dump(), {}, {.hold = true});
  writing->WaitForBytes();
  const auto queued = SendTo(*app_, "POST", "/v1/completions", endless.dump());
  queued->WaitForHead();
  const HttpResponse refused = Post("/v1/completions", endless);
  EXPECT_EQ(Error(refused, 429)["type"], "rate_limit_error");
  EXPECT_THAT(refused.headers, ::testing::Contains(std::pair<std::string, std::string>("Retry-After", "1")));
  for (const auto& reply : {writing, queued}) reply->GoAway();
  WaitForRest();
}

TEST_F(AppTest, MetricsCountWhatWasDone) {
  Serve();
  Ok("/v1/completions", Text("the sea", {{"max_tokens", 5}}));
  Error(Post("/v1/completions", {{"prompt", 5}}), 400);
  const std::string text = Get("/metrics").body;
  EXPECT_THAT(text, HasSubstr("# TYPE longspec:time_to_first_token_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("longspec:time_to_first_token_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("longspec:inter_token_latency_seconds_count 4\n"));
  EXPECT_THAT(text, HasSubstr("longspec:generation_tokens_total 5\n"));
  EXPECT_THAT(text, HasSubstr("longspec:request_success_total{finished_reason=\"length\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("longspec:request_failure_total{status=\"400\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("longspec:step_rows_bucket{le=\"+Inf\"}"));
  Serve({.metrics = false, .slots = false});
  Error(Get("/metrics"), 501);
  Error(Get("/slots"), 501);
}

}  // namespace
}  // namespace longspec::server
