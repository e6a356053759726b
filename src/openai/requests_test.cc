// SPDX-License-Identifier: Apache-2.0
#include "openai/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "openai/json.h"

namespace longspec::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr Endpoint kChat = Endpoint::kChatCompletions;
constexpr Endpoint kText = Endpoint::kCompletions;
constexpr Endpoint kLlama = Endpoint::kLlamaCompletion;

std::variant<ApiRequest, ApiError> Parse(Endpoint endpoint, const std::string& body,
                                         const GenerationRequest& defaults = DefaultRequest()) {
  auto json = ParseJson(body);
  if (auto* error = std::get_if<ApiError>(&json)) return *error;
  return ParseRequest(endpoint, std::get<nlohmann::ordered_json>(json), defaults);
}

// The request, which must be accepted.
ApiRequest Accepted(Endpoint endpoint, const std::string& body,
                    const GenerationRequest& defaults = DefaultRequest()) {
  auto request = Parse(endpoint, body, defaults);
  if (const auto* error = std::get_if<ApiError>(&request)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<ApiRequest>(std::move(request));
}

// The error, which must be there.
ApiError Refused(Endpoint endpoint, const std::string& body) {
  auto request = Parse(endpoint, body);
  if (auto* error = std::get_if<ApiError>(&request)) {
    EXPECT_EQ(error->message.find('\n'), std::string::npos) << error->message;
    return std::move(*error);
  }
  ADD_FAILURE() << body << " was accepted";
  return {};
}

std::string Repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

// {"prompt": "hi", <fields>} and a chat with the same fields.
std::string Text(const std::string& fields) { return R"({"prompt": "hi", )" + fields + "}"; }
std::string Chat(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "hi"}], )" + fields + "}";
}

TEST(OpenAiRequests, AChatHasMessages) {
  const ApiRequest request = Accepted(kChat, R"({"model": "m", "messages": [
      {"role": "developer", "content": "Be brief.", "name": "x"},
      {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
      {"role": "assistant", "content": null, "refusal": null, "tool_calls": []}]})");
  EXPECT_EQ(request.model, "m");
  ASSERT_THAT(request.generation.messages, SizeIs(3));
  EXPECT_EQ(request.generation.messages[0].role, "system");
  EXPECT_EQ(request.generation.messages[0].content, "Be brief.");
  EXPECT_EQ(request.generation.messages[1].content, "One\ntwo");
  EXPECT_EQ(request.generation.messages[2].role, "assistant");
  EXPECT_EQ(request.generation.messages[2].content, "");
  EXPECT_TRUE(request.generation.prompt.empty());
  EXPECT_TRUE(request.generation.tokens.empty());
}

TEST(OpenAiRequests, ATextCompletionHasAPrompt) {
  EXPECT_EQ(Accepted(kText, R"({"prompt": "Once"})").generation.prompt, "Once");
  EXPECT_EQ(Accepted(kText, R"({"prompt": ["Once"]})").generation.prompt, "Once");
  EXPECT_THAT(Accepted(kText, R"({"prompt": [1, 20, 300]})").generation.tokens, ElementsAre(1, 20, 300));
  EXPECT_THAT(Accepted(kText, R"({"prompt": [[1, 20]]})").generation.tokens, ElementsAre(1, 20));
  EXPECT_EQ(Accepted(kText, R"({"prompt": "a\u0000b"})").generation.prompt, std::string("a\0b", 3));
}

TEST(OpenAiRequests, WhatIsNotSaidHasOpenAisDefaults) {
  const ApiRequest chat = Accepted(kChat, Chat(R"("user": "u")"));
  EXPECT_EQ(chat.generation.sampling.temperature, 1.0F);
  EXPECT_EQ(chat.generation.sampling.top_p, 1.0F);
  EXPECT_EQ(chat.generation.sampling.top_k, 0);
  EXPECT_EQ(chat.generation.sampling.min_p, 0.0F);
  EXPECT_FALSE(chat.generation.sampling.seed.has_value());
  EXPECT_EQ(chat.generation.n_predict, -1);
  EXPECT_EQ(chat.n, 1);
  EXPECT_FALSE(chat.wishes.stream);
  EXPECT_EQ(Accepted(kText, Text(R"("n": 1)")).generation.n_predict, 16);
}

TEST(OpenAiRequests, DefaultsOfTheCallerStayUnlessTheRequestSaysOtherwise) {
  GenerationRequest defaults = DefaultRequest();
  defaults.prompt = "not for anybody";
  defaults.n_predict = 99;
  defaults.stop = {"END"};
  defaults.sampling.temperature = 0.25F;
  defaults.sampling.seed = 7;
  defaults.sampling.logit_bias = {{1, 2.0F}};
  defaults.speculation.type = "ngram";
  const ApiRequest kept =
      Accepted(kChat, Chat(R"("temperature": null, "seed": null, "stop": null)"), defaults);
  EXPECT_TRUE(kept.generation.prompt.empty());
  EXPECT_EQ(kept.generation.n_predict, 99);
  EXPECT_THAT(kept.generation.stop, ElementsAre("END"));
  EXPECT_EQ(kept.generation.sampling.temperature, 0.25F);
  EXPECT_EQ(kept.generation.sampling.seed, 7);
  EXPECT_THAT(kept.generation.sampling.logit_bias, ElementsAre(Pair(1, 2.0F)));
  EXPECT_EQ(kept.generation.speculation.type, "ngram");
  EXPECT_EQ(Accepted(kText, Text(R"("n": 1)"), defaults).generation.n_predict, 99);
  const ApiRequest changed = Accepted(
      kChat, Chat(R"("max_tokens": 3, "stop": [], "temperature": 0, "seed": 8, "logit_bias": {})"), defaults);
  EXPECT_EQ(changed.generation.n_predict, 3);
  EXPECT_TRUE(changed.generation.stop.empty());
  EXPECT_EQ(changed.generation.sampling.temperature, 0.0F);
  EXPECT_EQ(changed.generation.sampling.seed, 8);
  EXPECT_TRUE(changed.generation.sampling.logit_bias.empty());
}

TEST(OpenAiRequests, AllThatCanBeAskedForIsHonoured) {
  const ApiRequest request =
      Accepted(kChat, Chat(R"("max_tokens": 5, "max_completion_tokens": 6, "temperature": 0.5,
      "top_p": 0.9, "n": 3, "best_of": 3, "stop": ["a", "b"], "presence_penalty": -1, "frequency_penalty": 1.5,
      "logit_bias": {"15": -100, "7": 2.5}, "top_k": 10, "min_p": 0.1, "repeat_penalty": 1.25, "repeat_last_n": -1,
      "ignore_eos": true, "stream": true, "seed": 18446744073709551615)"));
  const GenerationRequest& generation = request.generation;
  EXPECT_EQ(generation.n_predict, 6);
  EXPECT_EQ(generation.sampling.temperature, 0.5F);
  EXPECT_EQ(generation.sampling.top_p, 0.9F);
  EXPECT_EQ(request.n, 3);
  EXPECT_THAT(generation.stop, ElementsAre("a", "b"));
  EXPECT_EQ(generation.sampling.presence_penalty, -1.0F);
  EXPECT_EQ(generation.sampling.frequency_penalty, 1.5F);
  EXPECT_THAT(generation.sampling.logit_bias, ElementsAre(Pair(15, -100.0F), Pair(7, 2.5F)));
  EXPECT_EQ(generation.sampling.top_k, 10);
  EXPECT_EQ(generation.sampling.min_p, 0.1F);
  EXPECT_EQ(generation.sampling.repeat_penalty, 1.25F);
  EXPECT_EQ(generation.sampling.repeat_last_n, -1);
  EXPECT_TRUE(generation.ignore_eos);
  EXPECT_TRUE(request.wishes.stream);
  EXPECT_EQ(generation.sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(request.unknown.empty());
  EXPECT_EQ(Accepted(kChat, Chat(R"("repetition_penalty": 1.5)")).generation.sampling.repeat_penalty, 1.5F);
  EXPECT_THAT(Accepted(kChat, Chat(R"("stop": "x")")).generation.stop, ElementsAre("x"));
}

TEST(OpenAiRequests, SeedsAreWholeNumbers) {
  GenerationRequest defaults = DefaultRequest();
  defaults.sampling.seed = 7;
  EXPECT_FALSE(Accepted(kChat, Chat(R"("seed": -1)"), defaults).generation.sampling.seed.has_value());
  EXPECT_EQ(Accepted(kChat, Chat(R"("seed": -2)")).generation.sampling.seed,
            std::numeric_limits<uint64_t>::max() - 1);
  EXPECT_EQ(Accepted(kChat, Chat(R"("seed": 0)")).generation.sampling.seed, 0);
  EXPECT_EQ(Refused(kChat, Chat(R"("seed": 1.5)")).param, "seed");
  EXPECT_EQ(Refused(kChat, Chat(R"("seed": 1e30)")).code, "invalid_type");
}

TEST(OpenAiRequests, GiantLimitsMeanNoLimit) {
  constexpr int kMost = std::numeric_limits<int>::max();
  EXPECT_EQ(Accepted(kChat, Chat(R"("max_tokens": 9999999999)")).generation.n_predict, kMost);
  EXPECT_EQ(Accepted(kChat, Chat(R"("max_tokens": 18446744073709551615)")).generation.n_predict, kMost);
}

struct BadRequest {
  Endpoint endpoint;
  std::string body, param, message;
};

TEST(OpenAiRequests, MistakesAreNamed) {
  const BadRequest cases[] = {
      {kChat, "[]", "", "the request must be an object, not a list"},
      {kChat, "{}", "messages", "messages is missing"},
      {kChat, R"({"messages": null})", "messages", "messages is missing"},
      {kChat, R"({"messages": "hi"})", "messages", "must be a list, not \"hi\""},
      {kChat, R"({"messages": []})", "messages", "must not be empty"},
      {kChat, R"({"messages": ["hi"]})", "messages[0]", "messages[0] must be an object"},
      {kChat, R"({"messages": [{"content": "x"}]})", "messages[0].role", "is missing"},
      {kChat, R"({"messages": [{"role": "user"}]})", "messages[0].content", "is missing"},
      {kChat, R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content", "a text, not 5"},
      {kChat, R"({"messages": [{"role": "king", "content": "x"}]})", "messages[0].role", "must be system"},
      {kChat, R"({"messages": [{"role": "function", "content": "x"}]})", "messages[0].role",
       "\"function\" is not supported"},
      {kChat, R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]})",
       "messages[0].tool_calls", "must be an assistant's list of calls"},
      {kChat,
       R"({"messages": [{"role": "user", "content": "a"},
                        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "image_url"}]}]})",
       "messages[1].content[1].type", "only parts of type \"text\" are"},
      {kChat, R"({"messages": [{"role": "user", "content": ["b"]}]})", "messages[0].content[0]", "an object"},
      {kText, "{}", "prompt", "prompt is missing"},
      {kText, R"({"prompt": ""})", "prompt", "must not be empty"},
      {kText, R"({"prompt": []})", "prompt", "must not be empty"},
      {kText, R"({"prompt": 5})", "prompt", "not 5"},
      {kText, R"({"prompt": ["a", "b"]})", "prompt", "several is not supported"},
      {kText, R"({"prompt": [1, "b"]})", "prompt", "nothing else"},
      {kText, R"({"prompt": [-1]})", "prompt", "token numbers"},
      {kText, R"({"prompt": [1.5]})", "prompt", "token numbers"},
      {kText, R"({"prompt": [2147483648]})", "prompt", "token numbers"},
      {kText, R"({"prompt": [18446744073709551615]})", "prompt", "token numbers"},
      {kText, Text(R"("model": 5)"), "model", "a text, not 5"},
      {kText, Text(R"("max_tokens": 0)"), "max_tokens", "must be at least 1, not 0"},
      {kText, Text(R"("max_tokens": 1.5)"), "max_tokens", "a whole number, not 1.5"},
      {kText, Text(R"("max_tokens": "5")"), "max_tokens", "a whole number, not \"5\""},
      {kChat, Chat(R"("max_completion_tokens": -1)"), "max_completion_tokens", "at least 1"},
      {kText, Text(R"("temperature": 2.5)"), "temperature", "must be from 0 to 2, not 2.5"},
      {kText, Text(R"("temperature": -0.1)"), "temperature", "from 0 to 2"},
      {kText, Text(R"("temperature": "warm")"), "temperature", "a number, not \"warm\""},
      {kText, Text(R"("temperature": true)"), "temperature", "a number, not true"},
      {kText, Text(R"("top_p": 1.01)"), "top_p", "from 0 to 1"},
      {kText, Text(R"("min_p": -1)"), "min_p", "from 0 to 1"},
      {kText, Text(R"("top_k": -2)"), "top_k", "at least -1"},
      {kText, Text(R"("presence_penalty": 2.1)"), "presence_penalty", "from -2 to 2"},
      {kText, Text(R"("frequency_penalty": -3)"), "frequency_penalty", "from -2 to 2"},
      {kText, Text(R"("repeat_penalty": 0)"), "repeat_penalty", "from 0.01 to 100"},
      {kText, Text(R"("n": 0)"), "n", "from 1 to 128"},
      {kText, Text(R"("n": 129)"), "n", "from 1 to 128"},
      {kText, Text(R"("n": 2, "best_of": 3)"), "best_of", "is not supported"},
      {kText, Text(R"("stop": 5)"), "stop", "up to 64 texts"},
      {kText, Text(R"("stop": ["a", 5])"), "stop", "up to 64 texts"},
      {kText, Text("\"stop\": [\"a\"" + Repeated(", \"a\"", 64) + "]"), "stop", "up to 64 texts"},
      {kText, Text(R"("stop": "")"), "stop", "empty"},
      {kText,
       Text(R"("stop": [")" + std::string(40'000, 'a') + R"(", ")" + std::string(40'000, 'b') + R"("])"),
       "stop", "at most 65536 bytes"},
      {kText, Text(R"("logit_bias": 5)"), "logit_bias", "an object of token numbers"},
      {kText, Text(R"("logit_bias": [5])"), "logit_bias", "pairs"},
      {kText, Text(R"("logit_bias": [[1, 2, 3]])"), "logit_bias", "pairs"},
      {kText, Text(R"("logit_bias": [[1.5, 2]])"), "logit_bias", "token numbers"},
      {kText, Text(R"("logit_bias": [[1, true]])"), "logit_bias", "from -100 to 100"},
      {kChat, Chat(R"("logprobs": 3)"), "logprobs", "true or false"},
      {kChat, Chat(R"("top_logprobs": 3)"), "top_logprobs", "logprobs is not true"},
      {kChat, Chat(R"("logprobs": true, "top_logprobs": 21)"), "top_logprobs", "from 0 to 20"},
      {kText, Text(R"("logprobs": -1)"), "logprobs", "from 0 to 20"},
      {kChat, Chat(R"("prediction": 5)"), "prediction", "an object"},
      {kChat, Chat(R"("prediction": {"type": "content"})"), "prediction.content", "is missing"},
      {kChat, Chat(R"("prediction": {"type": "x", "content": "a"})"), "prediction.type", "content"},
      {kChat, Chat(R"("prediction": {"content": [{"type": "image_url"}]})"), "prediction.content[0].type",
       "not supported"},
      {kChat, Chat(R"("speculative": {"drafters": [1]})"), "speculative.drafters", "a list of texts"},
      {kChat, Chat(R"("speculative": {"max_rows": 256})"), "speculative.max_rows", "from 0 to 255"},
      {kChat, Chat(R"("speculative": {"drafter": "ngram"})"), "speculative.drafter", "is not known"},
      {kChat, Chat(R"("stream_options": [])"), "stream_options", "an object"},
      {kChat, Chat(R"("response_fields": ["content"])"), "response_fields", "not supported here"},
      {kLlama, R"({"prompt": [1, "a", -2]})", "prompt", "token numbers"},
      {kLlama, R"({"prompt": {"text": "a"}})", "prompt.prompt_string", "a text"},
      {kLlama, R"({"prompt": {"prompt_string": "a", "multimodal_data": []}})", "prompt.multimodal_data",
       "not supported"},
      {kLlama, Text(R"("n_predict": -2)"), "n_predict", "at least -1"},
      {kLlama, Text(R"("response_fields": "content")"), "response_fields", "a list of texts"},
      {kText, Text(R"("logit_bias": {"x": 1})"), "logit_bias", "token numbers as keys"},
      {kText, Text(R"("logit_bias": {"-1": 1})"), "logit_bias", "token numbers as keys"},
      {kText, Text(R"("logit_bias": {"9999999999": 1})"), "logit_bias", "token numbers as keys"},
      {kText, Text(R"("logit_bias": {"1": 101})"), "logit_bias", "from -100 to 100"},
      {kText, Text(R"("logit_bias": {"1": "x"})"), "logit_bias", "from -100 to 100"},
      {kText, Text(R"("ignore_eos": 1)"), "ignore_eos", "true or false, not 1"},
      {kText, Text(R"("stream": "yes")"), "stream", "true or false"},
  };
  for (const BadRequest& bad : cases) {
    const ApiError error = Refused(bad.endpoint, bad.body);
    EXPECT_EQ(error.param, bad.param) << bad.body;
    EXPECT_THAT(error.message, HasSubstr(bad.message)) << bad.body;
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.status_code, 400);
    EXPECT_FALSE(error.code.empty()) << bad.body;
  }
}

TEST(OpenAiRequests, WhatIsNotOfferedIsRefusedByNameUnlessItIsOff) {
  const std::pair<std::string, std::string> fields[] = {
      {"functions", R"([{"name": "f"}])"},
      {"function_call", R"({"name": "f"})"},
      {"modalities", R"(["text", "audio"])"},
      {"audio", "{}"},
      {"web_search_options", "{}"},
      {"reasoning_effort", R"("high")"},
      {"verbosity", R"("low")"},
      {"echo", "true"},
      {"suffix", R"("tail")"},
      {"structured_outputs", "{}"},
      {"guided_json", "{}"},
      {"guided_regex", R"("a*")"},
      {"guided_choice", R"(["a"])"},
      {"guided_grammar", R"("root ::= x")"},
      {"typical_p", "0.5"},
      {"mirostat", "2"},
      {"samplers", R"(["top_k"])"},
      {"chat_template_kwargs", R"({"a": 1})"},
  };
  for (const auto& [name, value] : fields) {
    const ApiError error = Refused(kChat, Chat("\"" + name + "\": " + value));
    EXPECT_EQ(error.param, name);
    EXPECT_EQ(error.message, name + " is not supported");
    EXPECT_EQ(error.code, "unsupported_parameter");
  }
  Accepted(kChat,
           Chat(R"("tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "logprobs": false,
      "top_logprobs": 0, "modalities": ["text"], "audio": null, "reasoning_effort": "none", "echo": false,
      "suffix": "", "functions": [], "function_call": "none", "verbosity": "medium", "grammar": "")"));
}

TEST(OpenAiRequests, WhatChangesNothingIsPassedOverAndWhatIsUnknownIsSaid) {
  EXPECT_TRUE(
      Accepted(kChat, Chat(R"("user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "flex",
      "prediction": {"type": "content", "content": "x"}, "stream_options": null, "prompt_cache_key": "k")"))
          .unknown.empty());
  EXPECT_THAT(Accepted(kChat, Chat(R"("temprature": 0, "max_token": 5)")).unknown,
              ElementsAre("temprature", "max_token"));
  std::string many = R"("a": 1)";
  for (int i = 0; i < 100; ++i) many += ", \"x" + std::to_string(i) + std::string(1000, 'x') + "\": 1";
  const ApiRequest request = Accepted(kChat, Chat(many));
  EXPECT_THAT(request.unknown, SizeIs(8));
  for (const std::string& name : request.unknown) EXPECT_LE(name.size(), 64);
}

TEST(OpenAiRequests, HowAnAnswerIsGiven) {
  const ApiRequest request =
      Accepted(kChat, Chat(R"("stream": true, "stream_options": {"include_usage": true},
      "timings_per_token": true, "return_progress": true, "return_token_source": true, "return_tokens": true,
      "t_max_predict_ms": 500, "sse_ping_interval": 5, "logprobs": true, "top_logprobs": 2,
      "prediction": {"type": "content", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
      )"));
  EXPECT_TRUE(request.wishes.include_usage && request.wishes.timings_per_token);
  EXPECT_TRUE(request.wishes.return_progress && request.wishes.return_token_source &&
              request.wishes.return_tokens);
  EXPECT_EQ(request.wishes.t_max_predict_ms, 500);
  EXPECT_EQ(request.wishes.sse_ping_interval, 5);
  EXPECT_EQ(request.generation.n_logprobs, 2);
  EXPECT_EQ(request.prediction, "one\ntwo");
  EXPECT_EQ(Accepted(kChat, Chat(R"("logprobs": true)")).generation.n_logprobs, 0);
  EXPECT_EQ(Accepted(kChat, Chat(R"("n": 1)")).generation.n_logprobs, -1);
  EXPECT_EQ(Accepted(kText, Text(R"("logprobs": 3)")).generation.n_logprobs, 3);
  EXPECT_EQ(Accepted(kText, Text(R"("n_probs": 4)")).generation.n_logprobs, 4);
  EXPECT_TRUE(request.unknown.empty());
}

TEST(OpenAiRequests, SpeculationIsTheUsersToChoose) {
  const auto speculation = [](const std::string& fields) {
    return Accepted(kChat, Chat("\"speculative\": " + fields)).generation.speculation;
  };
  EXPECT_EQ(speculation("false").type, "none");
  EXPECT_EQ(speculation(R"({"enabled": false, "drafters": "ngram"})").type, "none");
  EXPECT_EQ(speculation(R"({"drafters": ["ngram", "suffix"]})").type, "ngram,suffix");
  EXPECT_EQ(speculation(R"({"max_rows": 3})").draft_n_max, 3);
  EXPECT_EQ(speculation(R"({"max_rows": 3})").adaptive_n_max, 3);
  EXPECT_EQ(speculation(R"({"max_rows": 0})").type, "none");
  EXPECT_EQ(speculation("true"), SpeculationOptions());
}

TEST(OpenAiRequests, LlamaCppsOwnForm) {
  const ApiRequest text =
      Accepted(kLlama, R"({"prompt": "hi", "temperature": 50, "stop": ["a", "b", "c", "d", "e"]})");
  EXPECT_EQ(text.generation.prompt, "hi");
  EXPECT_EQ(text.generation.n_predict, -1);
  EXPECT_THAT(text.generation.stop, SizeIs(5));
  EXPECT_EQ(Accepted(kLlama, Text(R"("n_predict": 0)")).generation.n_predict, 0);
  EXPECT_EQ(Accepted(kLlama, R"({"prompt": {"prompt_string": "hi"}})").generation.prompt, "hi");
  EXPECT_THAT(Accepted(kLlama, R"({"prompt": [1, 2]})").generation.tokens, ElementsAre(1, 2));
  const ApiRequest mixed = Accepted(kLlama, R"({"prompt": [1, 2, "hi", 3]})");
  ASSERT_THAT(mixed.prompt_parts, SizeIs(3));
  EXPECT_THAT(mixed.prompt_parts[0].tokens, ElementsAre(1, 2));
  EXPECT_EQ(mixed.prompt_parts[1].text, "hi");
  EXPECT_THAT(mixed.prompt_parts[2].tokens, ElementsAre(3));
  EXPECT_TRUE(mixed.generation.prompt.empty() && mixed.generation.tokens.empty());
  const ApiRequest biased =
      Accepted(kLlama, Text(R"("logit_bias": [[5, -1.5], ["7", 2], [" Hello", false]])"));
  EXPECT_THAT(biased.generation.sampling.logit_bias, ElementsAre(Pair(5, -1.5F)));
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(biased.text_bias, ElementsAre(Pair("7", 2.0F), Pair(" Hello", kNever)));
  EXPECT_THAT(Accepted(kLlama, Text(R"("response_fields": ["content"])")).wishes.response_fields,
              ElementsAre("content"));
}

}  // namespace
}  // namespace longspec::openai
