// SPDX-License-Identifier: Apache-2.0
//
// Requests in OpenAI's form: every field is honoured, or refused by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "api/fields.h"
#include "api/llama.h"
#include "api/openai.h"
#include "api/request.h"
#include "api/shared_fields.h"
#include "api/template_fields.h"

namespace longspec::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr Endpoint kChat = Endpoint::kChatCompletions;
constexpr Endpoint kText = Endpoint::kCompletions;
constexpr Endpoint kLlama = Endpoint::kLlamaCompletion;

auto ParserOf(Endpoint endpoint) {
  return endpoint == Endpoint::kInfill            ? ParseInfillRequest
         : endpoint == Endpoint::kLlamaCompletion ? ParseLlamaRequest
         : endpoint == Endpoint::kCompletions     ? ParseCompletionRequest
                                                  : ParseChatRequest;
}

std::variant<Request, Error> Parse(Endpoint endpoint, const std::string& body,
                                   const RequestDefaults& defaults = OpenAiDefaults()) {
  auto json = ParseJson(body);
  if (auto* error = std::get_if<Error>(&json)) return *error;
  return ParserOf(endpoint)(std::get<nlohmann::ordered_json>(json), defaults);
}

// The request, which must be accepted.
Request Accepted(Endpoint endpoint, const std::string& body,
                 const RequestDefaults& defaults = OpenAiDefaults()) {
  auto request = Parse(endpoint, body, defaults);
  if (const auto* error = std::get_if<Error>(&request)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<Request>(std::move(request));
}

// The error, which must be there.
Error Refused(Endpoint endpoint, const std::string& body) {
  auto request = Parse(endpoint, body);
  if (auto* error = std::get_if<Error>(&request)) {
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
  const Request request = Accepted(kChat, R"({"model": "m", "messages": [
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
  const Request chat = Accepted(kChat, Chat(R"("user": "u")"));
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
  RequestDefaults defaults = OpenAiDefaults();
  GenerationRequest& generation = defaults.generation;
  generation.prompt = "not for anybody";
  generation.n_predict = 99;
  generation.stop = {"END"};
  generation.sampling.temperature = 0.25F;
  generation.sampling.seed = 7;
  generation.sampling.logit_bias = {{1, 2.0F}};
  generation.speculation.type = "ngram";
  const Request kept = Accepted(kChat, Chat(R"("temperature": null, "seed": null, "stop": null)"), defaults);
  EXPECT_TRUE(kept.generation.prompt.empty());
  EXPECT_EQ(kept.generation.n_predict, 99);
  EXPECT_THAT(kept.generation.stop, ElementsAre("END"));
  EXPECT_EQ(kept.generation.sampling.temperature, 0.25F);
  EXPECT_EQ(kept.generation.sampling.seed, 7);
  EXPECT_THAT(kept.generation.sampling.logit_bias, ElementsAre(Pair(1, 2.0F)));
  EXPECT_EQ(kept.generation.speculation.type, "ngram");
  EXPECT_EQ(Accepted(kText, Text(R"("n": 1)"), defaults).generation.n_predict, 99);
  const Request changed = Accepted(
      kChat, Chat(R"("max_tokens": 3, "stop": [], "temperature": 0, "seed": 8, "logit_bias": {})"), defaults);
  EXPECT_EQ(changed.generation.n_predict, 3);
  EXPECT_TRUE(changed.generation.stop.empty());
  EXPECT_EQ(changed.generation.sampling.temperature, 0.0F);
  EXPECT_EQ(changed.generation.sampling.seed, 8);
  EXPECT_TRUE(changed.generation.sampling.logit_bias.empty());
}

TEST(OpenAiRequests, AllThatCanBeAskedForIsHonoured) {
  const Request request =
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
  RequestDefaults defaults = OpenAiDefaults();
  defaults.generation.sampling.seed = 7;
  EXPECT_FALSE(Accepted(kChat, Chat(R"("seed": -1)"), defaults).generation.sampling.seed.has_value());
  EXPECT_EQ(Accepted(kChat, Chat(R"("seed": -2)")).generation.sampling.seed,
            std::numeric_limits<uint64_t>::max() - 1);
  EXPECT_EQ(Accepted(kChat, Chat(R"("seed": 0)")).generation.sampling.seed, 0);
  EXPECT_EQ(Refused(kChat, Chat(R"("seed": 1.5)")).param, "seed");
  EXPECT_EQ(Refused(kChat, Chat(R"("seed": 1e30)")).code, "invalid_type");
  EXPECT_THAT(Refused(kChat, Chat(R"("seed": 18446744073709551616)")).message,
              HasSubstr("below 2^64, not 18446744073709551616"));
}

TEST(OpenAiRequests, GiantLimitsMeanNoLimit) {
  constexpr int kMost = std::numeric_limits<int>::max();
  EXPECT_EQ(Accepted(kChat, Chat(R"("max_tokens": 9999999999)")).generation.n_predict, kMost);
  for (const char* many : {"18446744073709551615", "18446744073709551616"})
    EXPECT_EQ(Accepted(kChat, Chat(R"("max_tokens": )" + std::string(many))).generation.n_predict, kMost);
  EXPECT_THAT(Refused(kChat, Chat(R"("temperature": 18446744073709551616)")).message,
              HasSubstr("not 18446744073709551616"));
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
      {kText, R"({"prompt": ["a", {}]})", "prompt.prompt_string", "a text"},
      {kText, R"({"prompt": [1, null]})", "prompt", "nothing else"},
      {kText, R"({"prompt": ["a", ""]})", "prompt", "must not be empty"},
      {kText, R"({"prompt": [[]]})", "prompt", "must not be empty"},
      {kText, R"({"prompt": ["a")" + Repeated(R"(, "a")", 1024) + "]}", "prompt", "at most 1024 prompts"},
      {kText, R"({"n": 128, "prompt": ["a")" + Repeated(R"(, "a")", 32) + "]}", "prompt", "4096 answers"},
      {kText, R"({"prompt": [-1]})", "prompt", "token numbers"},
      {kText, R"({"prompt": [1.5]})", "prompt", "token numbers"},
      {kText, R"({"prompt": [2147483648]})", "prompt", "token numbers"},
      {kText, R"({"prompt": [18446744073709551615]})", "prompt", "token numbers"},
      {kText, Text(R"("model": 5)"), "model", "a text, not 5"},
      {kText, Text(R"("max_tokens": -2)"), "max_tokens", "must be at least -1, not -2"},
      {kText, Text(R"("n_predict": -2)"), "n_predict", "at least -1"},
      {kText, Text(R"("min_tokens": 17)"), "min_tokens", "at most max_tokens, 16"},
      {kText, Text(R"("min_tokens": -1)"), "min_tokens", "at least 0"},
      {kText, Text(R"("truncate_prompt_tokens": 0)"), "truncate_prompt_tokens", "at least 1"},
      {kText, Text(R"("stop_token_ids": 5)"), "stop_token_ids", "a list of token numbers"},
      {kText, Text(R"("stop_token_ids": ["a"])"), "stop_token_ids", "a list of token numbers"},
      {kText, Text(R"("allowed_token_ids": [])"), "allowed_token_ids", "must not be empty"},
      {kText, Text(R"("bad_words": "a")"), "bad_words", "a list of up to 1024 texts"},
      {kText, Text(R"("bad_words": [" "])"), "bad_words", "none of them empty"},
      {kText, Text(R"("samplers": 5)"), "samplers", "a list of names"},
      {kText, Text(R"("samplers": ["top"])"), "samplers", "unknown sampler 'top'"},
      {kText, Text(R"("samplers": "kz")"), "samplers", "unknown sampler 'z'"},
      {kText, Text(R"("regex": 5)"), "regex", "a text"},
      {kText, Text(R"("guided_choice": [])"), "guided_choice", "a list of texts"},
      {kText, Text(R"("guided_json": "{")"), "guided_json", "a JSON schema"},
      {kText, Text(R"("regex": "a", "ebnf": "root ::= \"a\"")"), "ebnf", "beside regex"},
      {kText, Text(R"("structured_outputs": {"jsn": {}})"), "structured_outputs.jsn", "is not known"},
      {kText, Text(R"("structured_outputs": {"regex": "a", "choice": ["a"]})"), "structured_outputs.choice",
       "beside structured_outputs.regex"},
      {kChat, Chat(R"("add_generation_prompt": true, "continue_final_message": true)"),
       "continue_final_message", "cannot both be true"},
      {kChat, Chat(R"("continue_final_message": "reasoning_content")"), "continue_final_message",
       "only contents"},
      {kChat, Chat(R"("chat_template_kwargs": {"messages": []})"), "chat_template_kwargs.messages",
       "is no variable"},
      {kChat, Chat(R"("chat_template_kwargs": 5)"), "chat_template_kwargs", "an object"},
      {kChat, Chat(R"("thinking": {"type": "deep"})"), "thinking.type", "enabled, adaptive or disabled"},
      {kChat, Chat(R"("enable_thinking": "yes")"), "enable_thinking", "true or false"},
      {kText, Text(R"("max_tokens": 1.5)"), "max_tokens", "a whole number, not 1.5"},
      {kText, Text(R"("max_tokens": "5")"), "max_tokens", "a whole number, not \"5\""},
      {kChat, Chat(R"("max_completion_tokens": -2)"), "max_completion_tokens", "at least -1"},
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
      {kText, Text(R"("logit_bias": 5)"), "logit_bias", "an object of tokens"},
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
      {kChat, Chat(R"("speculative": {"enabled": false, "max_rows": 4})"), "speculative.max_rows",
       "has no effect with enabled false"},
      {kChat, Chat(R"("speculative": {"enabled": false, "drafters": "ngram"})"), "speculative.drafters",
       "has no effect with enabled false"},
      {kChat, Chat(R"("speculative": {"drafter": "ngram"})"), "speculative.drafter", "is not known"},
      {kChat, Chat(R"("stream_options": [])"), "stream_options", "an object"},
      {kLlama, R"({"prompt": [1, "a", -2]})", "prompt", "token numbers"},
      {kLlama, R"({"prompt": {"text": "a"}})", "prompt.prompt_string", "a text"},
      {kLlama, R"({"prompt": {"prompt_string": "a", "multimodal_data": []}})", "prompt.multimodal_data",
       "not supported"},
      {kLlama, Text(R"("n_predict": -2)"), "n_predict", "at least -1"},
      {kLlama, Text(R"("response_fields": "content")"), "response_fields", "a list of texts"},
      {kText, Text(R"("logit_bias": {"1": 101})"), "logit_bias", "from -100 to 100"},
      {kText, Text(R"("logit_bias": {"1": "x"})"), "logit_bias", "from -100 to 100"},
      {kText, Text(R"("ignore_eos": 1)"), "ignore_eos", "true or false, not 1"},
      {kText, Text(R"("stream": "yes")"), "stream", "true or false"},
  };
  for (const BadRequest& bad : cases) {
    const Error error = Refused(bad.endpoint, bad.body);
    EXPECT_EQ(error.param, bad.param) << bad.body;
    EXPECT_THAT(error.message, HasSubstr(bad.message)) << bad.body;
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.status_code, 400);
    EXPECT_FALSE(error.code.empty()) << bad.body;
  }
}

TEST(OpenAiRequests, WhatIsNotOfferedIsRefusedByNameWithWhatWouldBeRight) {
  const std::pair<std::string, std::string> fields[] = {
      {"functions", R"([{"name": "f"}])"},
      {"function_call", R"({"name": "f"})"},
      {"modalities", R"(["text", "audio"])"},
      {"audio", "{}"},
      {"web_search_options", "{}"},
      {"echo", "true"},
      {"suffix", R"("tail")"},
      {"typical_p", "0.5"},
      {"mirostat", "2"},
      {"prompt_logprobs", "1"},
      {"chat_template", R"("{{ messages }}")"},
      {"skip_special_tokens", "false"},
      {"use_beam_search", "true"},
      {"thinking_budget_tokens", "100"},
  };
  for (const auto& [name, value] : fields) {
    const Error error = Refused(kChat, Chat("\"" + name + "\": " + value));
    EXPECT_EQ(error.param, name);
    EXPECT_THAT(error.message, ::testing::StartsWith(name + " is not supported: ")) << name;
    EXPECT_EQ(error.code, "unsupported_parameter");
  }
  EXPECT_THAT(Refused(kText, Text(R"("tools": [{}])")).message, HasSubstr("/v1/chat/completions"));
  Accepted(kChat,
           Chat(R"("tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "logprobs": false,
      "top_logprobs": 0, "modalities": ["text"], "audio": null, "echo": false, "prompt_logprobs": null,
      "suffix": "", "functions": [], "function_call": "none", "grammar": "", "skip_special_tokens": true)"));
}

// Names that these servers and their clients have for fields: none is passed over as if nobody knew it.
constexpr const char* kKnownElsewhere[] = {
    // OpenAI
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "metadata", "modalities", "model", "n", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "reasoning_effort", "response_format",
    "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options", "temperature",
    "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options", "best_of",
    "echo", "suffix", "reasoning",
    // llama.cpp
    "cache_prompt", "return_tokens", "return_progress", "sse_ping_interval", "n_predict", "n_indent",
    "n_keep", "n_discard", "n_cmpl", "n_cache_reuse", "t_max_predict_ms", "t_max_prompt_ms",
    "response_fields", "top_k", "min_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "typical_p",
    "dynatemp_range", "dynatemp_exponent", "repeat_last_n", "repeat_penalty", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target",
    "adaptive_decay", "n_probs", "min_keep", "backend_sampling", "post_sampling_probs", "lora",
    "dry_sequence_breakers", "json_schema", "grammar", "grammar_lazy", "reasoning_format", "parse_tool_calls",
    "continue_final_message", "preserved_tokens", "grammar_triggers", "reasoning_budget_tokens", "ignore_eos",
    "samplers", "id_slot", "chat_template_kwargs", "timings_per_token", "add_generation_prompt",
    // vLLM
    "use_beam_search", "repetition_penalty", "length_penalty", "stop_token_ids", "include_stop_str_in_output",
    "min_tokens", "skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens",
    "truncation_side", "prompt_logprobs", "logprob_token_ids", "allowed_token_ids", "bad_words",
    "add_special_tokens", "documents", "chat_template", "media_io_kwargs", "mm_processor_kwargs",
    "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "guided_decoding_backend", "guided_whitespace_pattern", "structural_tag", "priority", "request_id",
    "session_id", "return_tokens_as_token_ids", "return_token_ids", "return_prompt_text", "cache_salt",
    "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "repetition_detection", "stream_interval",
    "thinking_token_budget", "include_reasoning", "watermarking", "prompt_embeds",
    // SGLang and others
    "regex", "ebnf", "no_stop_trim", "stop_regex", "lora_path", "session_params", "separate_reasoning",
    "stream_reasoning", "return_hidden_states", "custom_logit_processor", "custom_params", "rid",
    "enable_thinking", "thinking", "random_seed", "safe_prompt"};

TEST(OpenAiRequests, WhatOtherServersKnowIsHonouredOrRefusedButNeverUnknown) {
  for (const char* name : kKnownElsewhere) {
    for (const Endpoint endpoint : {kChat, kText, kLlama}) {
      // Of no field is this a value.
      const std::string field = "\"" + std::string(name) + R"(": {"no": ["such", "value"]})";
      const auto parsed = Parse(endpoint, endpoint == kChat ? Chat(field) : Text(field));
      if (const auto* error = std::get_if<Error>(&parsed)) {
        EXPECT_THAT(error->param, ::testing::StartsWith(name));
      } else {
        EXPECT_THAT(std::get<Request>(parsed).unknown, ::testing::IsEmpty()) << name;
      }
    }
  }
}

// As routers of models have it.
TEST(OpenAiRequests, WhatIsThoughtMayBeSaidInOneObject) {
  const auto variables = [](const std::string& reasoning) {
    return Accepted(kChat, Chat("\"reasoning\": " + reasoning)).generation.template_variables;
  };
  EXPECT_EQ(variables(R"({"effort": "low"})"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"({"enabled": false})"), R"({"enable_thinking":false})");
  EXPECT_EQ(variables(R"({"effort": "none"})"), R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(Accepted(kChat, Chat(R"("reasoning": {"exclude": true})")).wishes.thoughts,
            ThoughtsPlace::kNowhere);
  EXPECT_THAT(Accepted(kChat, Chat(R"("reasoning": {"max_tokens": 2000})")).ignored,
              ElementsAre("reasoning.max_tokens"));
  EXPECT_EQ(Refused(kChat, Chat(R"("reasoning": {"enabled": "yes"})")).param, "reasoning.enabled");
  EXPECT_EQ(Refused(kChat, R"({"messages": [{"role": "user", "content": "?", "images": ["aGk="]}]})").param,
            "messages[0].images");
}

TEST(OpenAiRequests, WhatChangesNothingIsPassedOverAndWhatIsUnknownIsSaid) {
  const Request kept = Accepted(kChat, Chat(R"("user": "u", "metadata": {"a": "b"}, "store": true,
      "service_tier": "flex", "prediction": {"type": "content", "content": "x"}, "stream_options": null,
      "prompt_cache_key": "k", "response_fields": [""], "n_keep": 5)"));
  EXPECT_THAT(kept.unknown, ::testing::IsEmpty());
  EXPECT_THAT(kept.ignored, ::testing::IsEmpty());
  EXPECT_THAT(Accepted(kChat, Chat(R"("verbosity": "low", "truncation": "auto")")).ignored,
              ElementsAre("verbosity", "truncation"));
  EXPECT_THAT(Accepted(kChat, Chat(R"("temprature": 0, "max_token": 5)")).unknown,
              ElementsAre("temprature", "max_token"));
  std::string many = R"("a": 1)";
  for (int i = 0; i < 100; ++i) many += ", \"x" + std::to_string(i) + std::string(1000, 'x') + "\": 1";
  const Request request = Accepted(kChat, Chat(many));
  EXPECT_THAT(request.unknown, SizeIs(8));
  for (const std::string& name : request.unknown) EXPECT_LE(name.size(), 64);
}

TEST(OpenAiRequests, LimitsHaveSeveralNamesOfWhichTheLastCounts) {
  for (const Endpoint endpoint : {kChat, kText, kLlama}) {
    const auto limit = [&](const std::string& fields) {
      return Accepted(endpoint, endpoint == kChat ? Chat(fields) : Text(fields)).generation.n_predict;
    };
    for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
      const std::string field = "\"" + std::string(name) + "\": ";
      for (const int value : {-1, 0, 7}) EXPECT_EQ(limit(field + std::to_string(value)), value) << name;
    }
    EXPECT_EQ(limit(R"("n_predict": 3, "max_completion_tokens": 2, "max_tokens": 1)"), 3);
    EXPECT_EQ(limit(R"("max_completion_tokens": 2, "max_tokens": 1)"), 2);
  }
}

TEST(OpenAiRequests, WholeNumbersMayBeWrittenAsFloats) {
  const Request request = Accepted(
      kText,
      R"({"prompt": [1.0, 2], "seed": 42.0, "max_tokens": 1e1, "top_k": 5.0, "logit_bias": [[3.0, 1]]})");
  EXPECT_EQ(request.generation.sampling.seed, 42);
  EXPECT_EQ(request.generation.n_predict, 10);
  EXPECT_EQ(request.generation.sampling.top_k, 5);
  EXPECT_THAT(request.generation.tokens, ElementsAre(1, 2));
  EXPECT_THAT(request.generation.sampling.logit_bias, ElementsAre(Pair(3, 1.0F)));
  EXPECT_EQ(Accepted(kText, Text(R"("max_tokens": 1e30)")).generation.n_predict,
            std::numeric_limits<int>::max());
}

// A list of prompts is that many prompts, each a text, tokens, or a mixture of both; llama.cpp's form names
// texts, too.
TEST(OpenAiRequests, SeveralPrompts) {
  const Request texts = Accepted(kText, R"({"prompt": ["a", "b"], "n": 2})");
  ASSERT_THAT(texts.prompts, SizeIs(2));
  EXPECT_EQ(texts.prompts[1][0].text, "b");
  EXPECT_TRUE(texts.generation.prompt.empty() && texts.generation.tokens.empty());
  const Request lists = Accepted(kLlama, R"({"prompt": [[1, 2], "b", [3, "c"], {"prompt_string": "d"}]})");
  ASSERT_THAT(lists.prompts, SizeIs(4));
  EXPECT_THAT(lists.prompts[0][0].tokens, ElementsAre(1, 2));
  EXPECT_THAT(lists.prompts[2], SizeIs(2));
  EXPECT_EQ(lists.prompts[3][0].text, "d");
  EXPECT_EQ(Accepted(kText, Text(R"("echo": true, "max_tokens": 0)")).wishes.echo, true);
}

TEST(OpenAiRequests, TokensThatMayBeAndThatEnd) {
  const GenerationRequest request = Accepted(kChat, Chat(R"("min_tokens": 2, "stop_token_ids": [5, 6.0],
      "include_stop_str_in_output": true, "allowed_token_ids": [7], "bad_words": ["a b"],
      "truncate_prompt_tokens": -1)"))
                                        .generation;
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_THAT(request.stop_tokens, ElementsAre(5, 6));
  EXPECT_TRUE(request.include_stop);
  EXPECT_THAT(request.allowed_tokens, ElementsAre(7));
  EXPECT_THAT(request.bad_words, ElementsAre("a b"));
  EXPECT_EQ(request.truncate_prompt_tokens, -1);
  EXPECT_TRUE(Accepted(kChat, Chat(R"("no_stop_trim": true)")).generation.include_stop);
}

TEST(OpenAiRequests, FormsOfAnswersUnderEveryName) {
  using Kind = GrammarText::Kind;
  const std::tuple<std::string, GrammarText, std::string> forms[] = {
      {R"("regex": "a+")", {Kind::kRegex, "a+"}, "regex"},
      {R"("guided_regex": "a+")", {Kind::kRegex, "a+"}, "guided_regex"},
      {R"("ebnf": "root ::= \"a\"")", {Kind::kGbnf, "root ::= \"a\""}, "ebnf"},
      {R"("guided_grammar": "root ::= \"a\"")", {Kind::kGbnf, "root ::= \"a\""}, "guided_grammar"},
      {R"("guided_json": "{\"type\": \"null\"}")", {Kind::kJsonSchema, R"({"type":"null"})"}, "guided_json"},
      {R"("guided_json": {"type": "null"})", {Kind::kJsonSchema, R"({"type":"null"})"}, "guided_json"},
      {R"("json_schema": {"type": "null"})", {Kind::kJsonSchema, R"({"type":"null"})"}, "json_schema"},
      {R"("guided_choice": ["a\"\\\n", "b"])",
       {Kind::kGbnf, R"(root ::= "a\"\\\x0a" | "b")"},
       "guided_choice"},
      {R"("structured_outputs": {"choice": ["a"]})",
       {Kind::kGbnf, R"(root ::= "a")"},
       "structured_outputs.choice"},
      {R"("structured_outputs": {"json_object": true})",
       {Kind::kJsonObject, ""},
       "structured_outputs.json_object"},
      {R"("structured_outputs": {})", {}, ""},
      {R"("structured_outputs": null)", {}, ""},
      {R"("response_format": {"type": "json_object"})", {Kind::kJsonObject, ""}, "response_format"},
  };
  for (const auto& [fields, grammar, name] : forms) {
    const Request request = Accepted(kChat, Chat(fields));
    EXPECT_EQ(request.generation.grammar, grammar) << fields;
    EXPECT_EQ(request.grammar_field, name) << fields;
  }
}

// A chat whose last message is the assistant's.
std::string Begun(const std::string& fields, const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well")" +
         more + "}]" + (fields.empty() ? "" : ", " + fields) + "}";
}

TEST(OpenAiRequests, ALastMessageOfTheAssistantsIsGoneOnWith) {
  const auto end = [](const std::string& body) { return Accepted(kChat, body).generation.prompt_end; };
  EXPECT_EQ(end(Begun("")), PromptEnd::kContinued);
  EXPECT_EQ(end(Chat(R"("n": 1)")), PromptEnd::kNewTurn);
  EXPECT_EQ(end(Begun(R"("continue_final_message": true)")), PromptEnd::kContinued);
  EXPECT_EQ(end(Begun(R"("continue_final_message": "content", "add_generation_prompt": false)")),
            PromptEnd::kContinued);
  // What is said is done, as vLLM does it.
  EXPECT_EQ(end(Begun(R"("continue_final_message": false)")), PromptEnd::kNewTurn);
  EXPECT_EQ(end(Begun(R"("add_generation_prompt": true)")), PromptEnd::kNewTurn);
  EXPECT_EQ(end(Begun(R"("add_generation_prompt": false)")), PromptEnd::kClosed);
  EXPECT_EQ(end(Begun(R"("chat_template_kwargs": {"add_generation_prompt": false})")), PromptEnd::kClosed);
  EXPECT_EQ(end(Chat(R"("add_generation_prompt": false)")), PromptEnd::kClosed);
  EXPECT_EQ(end(Chat(R"("continue_final_message": true)")), PromptEnd::kContinued);
  // Calls wait for their results.
  const std::string calls =
      R"(, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}])";
  EXPECT_EQ(end(Begun("", calls)), PromptEnd::kNewTurn);
  EXPECT_THAT(Refused(kChat, Begun(R"("continue_final_message": true)", calls)).message,
              HasSubstr("has tool_calls"));
}

TEST(OpenAiRequests, WhatTheTemplateIsTold) {
  const auto told = [](const std::string& fields) {
    return Accepted(kChat, Chat(fields)).generation.template_variables;
  };
  EXPECT_EQ(told(R"("n": 1)"), "");
  EXPECT_EQ(told(R"("chat_template_kwargs": {"a": [1], "enable_thinking": false})"),
            R"({"a":[1],"enable_thinking":false})");
  EXPECT_EQ(told(R"("enable_thinking": false)"), R"({"enable_thinking":false})");
  EXPECT_EQ(told(R"("thinking": {"type": "adaptive"})"), R"({"enable_thinking":true})");
  EXPECT_EQ(told(R"("thinking": {"type": "enabled", "budget_tokens": 1024})"), R"({"enable_thinking":true})");
  EXPECT_EQ(told(R"("thinking": {"type": "disabled"})"), R"({"enable_thinking":false})");
  EXPECT_EQ(told(R"("reasoning_effort": "high")"), R"({"reasoning_effort":"high"})");
  EXPECT_EQ(told(R"("reasoning_effort": "none")"), R"({"reasoning_effort":"none","enable_thinking":false})");
  for (const char* budget : {"thinking_budget", "thinking_budget_tokens", "thinking_token_budget",
                             "reasoning_budget", "reasoning_budget_tokens"}) {
    EXPECT_EQ(told("\"" + std::string(budget) + "\": 0"), R"({"enable_thinking":false})");
    EXPECT_EQ(told("\"" + std::string(budget) + "\": -1"), "");
  }
  EXPECT_EQ(told(R"("documents": [{"title": "t"}])"), R"({"documents":[{"title":"t"}]})");
}

TEST(OpenAiRequests, WhatTheTemplateIsToldOfAllChats) {
  RequestDefaults defaults = OpenAiDefaults();
  defaults.generation.template_variables = *ReadTemplateVariables(R"({"enable_thinking": false, "a": 1})");
  const auto told = [&](Endpoint endpoint, const std::string& body) {
    const auto request = ParserOf(endpoint)(nlohmann::ordered_json::parse(body), defaults);
    return std::get<Request>(request).generation.template_variables;
  };
  EXPECT_EQ(told(kChat, Chat(R"("n": 1)")), R"({"enable_thinking":false,"a":1})");
  EXPECT_EQ(told(kChat, Chat(R"("enable_thinking": true)")), R"({"enable_thinking":true,"a":1})");
  EXPECT_EQ(told(kChat, Chat(R"("chat_template_kwargs": {"a": 2})")), R"({"enable_thinking":false,"a":2})");
  EXPECT_EQ(told(Endpoint::kCompletions, R"({"prompt": "x"})"), "");
  // What is no variable of a request's is none for all of them, and how a prompt ends is a request's own.
  EXPECT_EQ(*ReadTemplateVariables("{}"), "");
  for (const char* name : {"messages", "tools", "bos_token", "chat_template", "add_generation_prompt",
                           "continue_final_message"}) {
    const auto refused = ReadTemplateVariables(R"({")" + std::string(name) + R"(": true})");
    EXPECT_THAT(refused.status().message(), ::testing::StartsWith(name));
  }
  EXPECT_THAT(ReadTemplateVariables("5").status().message(), HasSubstr("object"));
  EXPECT_FALSE(ReadTemplateVariables("{").ok());
}

TEST(OpenAiRequests, WhatTheAssistantThoughtIsForTheTemplate) {
  const auto more = [](const std::string& member) {
    return Accepted(kChat, R"({"messages": [{"role": "assistant", "content": "a", )" + member +
                               R"(}, {"role": "user", "content": "b", "reasoning": "no"}]})")
        .generation.messages;
  };
  const std::string expected = R"({"reasoning_content":"hm","reasoning":"hm"})";
  EXPECT_EQ(more(R"("reasoning_content": "hm")")[0].more, expected);
  EXPECT_EQ(more(R"("reasoning": "hm")")[0].more, expected);
  EXPECT_EQ(more(R"("thinking": "hm")")[0].more, R"({"thinking":"hm"})");
  EXPECT_EQ(more(R"("reasoning_content": null)")[0].more, "");
  EXPECT_EQ(more(R"("reasoning": "hm")")[1].more, "");
}

TEST(OpenAiRequests, SamplersThatAreNotListedAreTurnedOff) {
  const Request request = Accepted(
      kLlama, Text(R"("samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.9, "min_p": 0.1,
      "repeat_penalty": 1.5, "temperature": 0.3)"));
  const SamplingOptions& sampling = request.generation.sampling;
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.min_p, 0.0F);
  EXPECT_EQ(sampling.repeat_penalty, 1.0F);
  EXPECT_EQ(sampling.temperature, 1.0F);
  EXPECT_TRUE(sampling.infill);
  EXPECT_THAT(request.ignored, ElementsAre());
  const SamplingOptions letters =
      Accepted(kChat, Chat(R"("samplers": "mt", "top_k": 4, "min_p": 0.1)")).generation.sampling;
  EXPECT_EQ(letters.top_k, 0);
  EXPECT_EQ(letters.min_p, 0.1F);
  EXPECT_FALSE(letters.infill);
  EXPECT_TRUE(Accepted(kText, Text(R"("samplers": "kpi")")).generation.sampling.infill);
  EXPECT_THAT(Accepted(kText, Text(R"("samplers": ["xtc"])")).ignored, ElementsAre("samplers: xtc"));
}

constexpr Endpoint kHole = Endpoint::kInfill;

TEST(OpenAiRequests, ATextWithAHole) {
  const Request request = Accepted(kHole, R"({"input_prefix": "int f() {\n", "input_suffix": "}\n",
      "input_extra": [{"text": "one", "filename": "a.c", "time": 5}, {"text": "", "filename": null}],
      "prompt": "  ", "n_predict": 0, "n_indent": 4, "samplers": [], "t_max_prompt_ms": 1, "id_slot": 0,
      "model": "", "stop": [], "response_fields": [""], "n_cmpl": 3, "cache_prompt": true})");
  ASSERT_TRUE(request.infill.has_value());
  EXPECT_EQ(request.infill->prefix, "int f() {\n");
  EXPECT_EQ(request.infill->suffix, "}\n");
  EXPECT_EQ(request.infill->prompt, "  ");
  ASSERT_THAT(request.infill->chunks, SizeIs(2));
  EXPECT_EQ(request.infill->chunks[0].filename, "a.c");
  EXPECT_EQ(request.infill->chunks[0].text, "one");
  EXPECT_EQ(request.infill->chunks[1].filename, "tmp");
  EXPECT_EQ(request.generation.n_predict, 0);
  EXPECT_EQ(request.generation.n_indent, 4);
  EXPECT_EQ(request.n, 3);
  EXPECT_THAT(request.ignored, ElementsAre("t_max_prompt_ms"));
  EXPECT_THAT(request.unknown, ElementsAre());
  Accepted(kHole, R"({"input_prefix": "", "input_suffix": ""})");
  const auto refused = [](const std::string& fields) {
    return Refused(kHole, R"({"input_prefix": "a", "input_suffix": "b", )" + fields + "}");
  };
  EXPECT_EQ(Refused(kHole, R"({"input_suffix": ""})").param, "input_prefix");
  EXPECT_EQ(Refused(kHole, R"({"input_prefix": ""})").param, "input_suffix");
  EXPECT_EQ(Refused(kHole, R"({"input_prefix": ["a"], "input_suffix": ""})").param, "input_prefix");
  EXPECT_EQ(refused(R"("prompt": ["a"])").param, "prompt");
  EXPECT_EQ(refused(R"("input_extra": "a")").param, "input_extra");
  EXPECT_EQ(refused(R"("input_extra": [{"text": "a"}, {"filename": "b"}])").param, "input_extra[1].text");
  EXPECT_EQ(refused(R"("input_extra": [5])").param, "input_extra[0]");
  EXPECT_EQ(refused(R"("input_extra": [{"text": "a", "filename": 1}])").param, "input_extra[0].filename");
}

TEST(OpenAiRequests, ASuffixMakesAHoleBehindThePrompt) {
  const Request request = Accepted(kText, Text(R"("suffix": "tail")"));
  ASSERT_TRUE(request.infill.has_value());
  EXPECT_EQ(request.infill->prefix, "hi");
  EXPECT_EQ(request.infill->suffix, "tail");
  EXPECT_EQ(request.generation.prompt, "");
  EXPECT_FALSE(Accepted(kText, Text(R"("suffix": "")")).infill.has_value());
  EXPECT_FALSE(Accepted(kText, Text(R"("suffix": null)")).infill.has_value());
  for (const char* prompt : {"[1, 2]", R"(["a", "b"])", R"([1, "a"])"})
    EXPECT_EQ(Refused(kText, R"({"suffix": "tail", "prompt": )" + std::string(prompt) + "}").param, "prompt");
  EXPECT_EQ(Accepted(kText, R"({"suffix": "tail", "prompt": ""})").infill->prefix, "");
  EXPECT_EQ(Refused(kText, R"({"suffix": "tail"})").param, "prompt");
  EXPECT_EQ(Refused(kText, Text(R"("suffix": "tail", "echo": true)")).param, "echo");
  EXPECT_EQ(Refused(kLlama, Text(R"("suffix": "tail")")).param, "suffix");
}

TEST(OpenAiRequests, MistralsFormHasAHoleAlsoWithoutASuffix) {
  const auto fim = [](const std::string& body) {
    return ParseFimRequest(std::get<nlohmann::ordered_json>(ParseJson(body)), OpenAiDefaults());
  };
  for (const char* body : {R"({"model": "codestral", "prompt": "a", "suffix": "b", "max_tokens": 64,
                               "random_seed": 4, "min_tokens": null, "stop": "x"})",
                           R"({"prompt": "a"})"}) {
    const auto parsed = fim(body);
    ASSERT_TRUE(std::holds_alternative<Request>(parsed)) << body;
    const auto& request = std::get<Request>(parsed);
    ASSERT_TRUE(request.infill.has_value()) << body;
    EXPECT_EQ(request.infill->prefix, "a");
    EXPECT_EQ(request.endpoint, kChat);  // as its answers look
  }
  EXPECT_EQ(std::get<Request>(fim(R"({"prompt": "a", "max_tokens": 64})")).generation.n_predict, 64);
  EXPECT_EQ(std::get<Request>(fim(R"({"prompt": "a"})")).generation.n_predict, -1);
  EXPECT_TRUE(std::holds_alternative<Error>(fim(R"({"suffix": "a"})")));
}

TEST(OpenAiRequests, HowAnAnswerIsGiven) {
  const Request request = Accepted(kChat, Chat(R"("stream": true, "stream_options": {"include_usage": true},
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
  const auto wish = [](const std::string& fields) {
    return Accepted(kChat, Chat("\"speculative\": " + fields)).speculative;
  };
  EXPECT_EQ(wish("false").type, "none");
  EXPECT_EQ(wish(R"({"enabled": false})").type, "none");
  EXPECT_EQ(wish(R"({"enabled": true, "drafters": ["ngram", "suffix"]})").type, "ngram,suffix");
  EXPECT_EQ(wish(R"({"max_rows": 3})").max_rows, 3);
  EXPECT_EQ(wish(R"({"max_rows": 3})").type, "");
  EXPECT_EQ(wish(R"({"max_rows": 0})").type, "none");
  EXPECT_EQ(wish("true").type, "");
  EXPECT_EQ(wish("true").max_rows, -1);
}

TEST(OpenAiRequests, LlamaCppsOwnForm) {
  const Request text =
      Accepted(kLlama, R"({"prompt": "hi", "temperature": 50, "stop": ["a", "b", "c", "d", "e"]})");
  EXPECT_EQ(text.generation.prompt, "hi");
  EXPECT_EQ(text.generation.n_predict, -1);
  EXPECT_THAT(text.generation.stop, SizeIs(5));
  EXPECT_EQ(Accepted(kLlama, Text(R"("n_predict": 0)")).generation.n_predict, 0);
  EXPECT_EQ(Accepted(kLlama, R"({"prompt": {"prompt_string": "hi"}})").generation.prompt, "hi");
  EXPECT_THAT(Accepted(kLlama, R"({"prompt": [1, 2]})").generation.tokens, ElementsAre(1, 2));
  const Request mixed = Accepted(kLlama, R"({"prompt": [1, 2, "hi", 3]})");
  ASSERT_THAT(mixed.prompts, SizeIs(1));
  ASSERT_THAT(mixed.prompts[0], SizeIs(3));
  EXPECT_THAT(mixed.prompts[0][0].tokens, ElementsAre(1, 2));
  EXPECT_EQ(mixed.prompts[0][1].text, "hi");
  EXPECT_THAT(mixed.prompts[0][2].tokens, ElementsAre(3));
  EXPECT_TRUE(mixed.generation.prompt.empty() && mixed.generation.tokens.empty());
  const Request biased = Accepted(kLlama, Text(R"("logit_bias": [[5, -1.5], ["7", 2], [" Hello", false]])"));
  EXPECT_THAT(biased.generation.sampling.logit_bias, ElementsAre(Pair(5, -1.5F)));
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(biased.text_bias, ElementsAre(Pair("7", 2.0F), Pair(" Hello", kNever)));
  const Request object = Accepted(kChat, Chat(R"("logit_bias": {"7": 2, " i ": -100, "-1": 1})"));
  EXPECT_THAT(object.generation.sampling.logit_bias, ElementsAre(Pair(7, 2.0F)));
  EXPECT_THAT(object.text_bias, ElementsAre(Pair(" i ", -100.0F), Pair("-1", 1.0F)));
  EXPECT_THAT(Accepted(kLlama, Text(R"("response_fields": ["content"])")).wishes.response_fields,
              ElementsAre("content"));
}

}  // namespace
}  // namespace longspec::api
