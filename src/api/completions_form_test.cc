// SPDX-License-Identifier: Apache-2.0
//
// Answers to text completions and their streams, in OpenAI's form and in llama.cpp's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/answer_form.h"
#include "api/anthropic.h"
#include "api/fields.h"
#include "api/llama.h"
#include "api/openai.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

FormParts PartsFor(Endpoint endpoint, int n = 1) {
  FormParts parts{.head = {.id = "7", .created = 1, .model = "m"},
                  .request = std::make_shared<const Request>(Request{.endpoint = endpoint, .n = n}),
                  .prompts = {{.text = "one ", .n_tokens = 2}, {.text = "two ", .n_tokens = 5}}};
  return parts;
}

// Gives the parts another request.
template <typename Change>
void Ask(FormParts& parts, const Change& change) {
  auto request = std::make_shared<Request>(*parts.request);
  change(*request);
  parts.request = std::move(request);
}

// An answer to a prompt of so many tokens, of which one was known.
FinishedAnswer Said(const std::string& text, int n_prompt = 2) {
  FinishedAnswer answer;
  answer.result.text = text;
  answer.result.tokens = {7, 8, 9};
  answer.result.finish_reason = FinishReason::kStop;
  answer.result.timings = {.cache_n = 1, .prompt_n = n_prompt - 1, .predicted_n = 3};
  answer.tokens = {
      {.token = {.id = 7, .bytes = "F", .logprob = -0.5F},
       .likeliest = {{.id = 7, .bytes = "F", .logprob = -0.5F}, {.id = 4, .bytes = "G", .logprob = -1}}}};
  return answer;
}

std::vector<Json> DataOf(const std::string& stream) {
  std::vector<Json> events;
  for (size_t at = stream.find("data: "); at != std::string::npos; at = stream.find("data: ", at + 1)) {
    const std::string data = stream.substr(at + 6, stream.find("\n\n", at) - at - 6);
    if (data != "[DONE]") events.push_back(Json::parse(data));
  }
  return events;
}

TEST(LlamaForm, FieldsThatAreWishedForKeepTheirPaths) {
  FormParts parts = PartsFor(Endpoint::kLlamaCompletion);
  parts.prompts.resize(1);
  Ask(parts, [](auto& request) {
    request.wishes.response_fields = {"content", "timings/prompt_n",   "generation_settings/top_k",
                                      "a/b",     "timings/prompt_n/x", ""};
  });
  const Json json = Json::parse(MakeLlamaForm(parts)->Whole(std::vector{Said("Four")}));
  EXPECT_EQ(json.dump(), R"({"content":"Four","timings/prompt_n":1,"generation_settings/top_k":40})");
  Ask(parts, [](auto& request) { request.wishes.response_fields = {""}; });
  EXPECT_EQ(MakeLlamaForm(parts)->Whole(std::vector{Said("Four")}), "{}\n");
}

TEST(LlamaForm, ChancesNameTheirTokens) {
  FormParts parts = PartsFor(Endpoint::kLlamaCompletion);
  parts.prompts.resize(1);
  Ask(parts, [](auto& request) { request.generation.n_logprobs = 2; });
  const Json json = Json::parse(MakeLlamaForm(parts)->Whole(std::vector{Said("Four")}));
  const Json& entry = json["completion_probabilities"][0];
  EXPECT_EQ(entry["id"], 7);
  EXPECT_EQ(entry["token"], "F");
  EXPECT_EQ(entry["bytes"], Json::array({70}));
  EXPECT_EQ(entry["logprob"], -0.5);
  EXPECT_EQ(entry["top_logprobs"][1]["id"], 4);
}

TEST(LlamaForm, SeveralPromptsAreAList) {
  const std::vector<FinishedAnswer> answers = {Said("a"), Said("b"), Said("c", 5), Said("d", 5)};
  const Json json = Json::parse(MakeLlamaForm(PartsFor(Endpoint::kLlamaCompletion, 2))->Whole(answers));
  ASSERT_EQ(json.size(), 4U);
  EXPECT_EQ(json[1]["prompt"], "one ");
  EXPECT_EQ(json[2]["prompt"], "two ");
  EXPECT_EQ(json[2]["index"], 2);
  EXPECT_EQ(json[3]["content"], "d");
  EXPECT_EQ(json[3]["tokens_evaluated"], 5);
}

TEST(LlamaForm, StreamsHaveTokensUnasked) {
  const auto form = MakeLlamaForm(PartsFor(Endpoint::kLlamaCompletion));
  const FinishedAnswer answer = Said("Four");
  const std::vector<Json> events =
      DataOf(form->OnPiece({.index = 0, .text = "F", .tokens = answer.tokens, .timings = {}}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["tokens"], Json::array({7}));
}

TEST(PublicSettings, ShowNothingOfWhatIsAnybodysOwn) {
  GenerationRequest request;
  request.stop = {"secret"};
  request.sampling.logit_bias = {{5, 1.0F}};
  const Json json = PublicSettingsJson(request, 100);
  EXPECT_FALSE(json.contains("stop") || json.contains("logit_bias"));
  EXPECT_EQ(json["top_k"], 40);
  EXPECT_EQ(GenerationSettingsJson(request, 100)["stop"], Json::array({"secret"}));
}

TEST(OpenAiCompletions, SeveralPromptsAreChoices) {
  const std::vector<FinishedAnswer> answers = {Said("a"), Said("b"), Said("c", 5), Said("d", 5)};
  FormParts parts = PartsFor(Endpoint::kCompletions, 2);
  const Json json = Json::parse(MakeOpenAiForm(parts)->Whole(answers));
  ASSERT_EQ(json["choices"].size(), 4U);
  EXPECT_EQ(json["choices"][2]["index"], 2);
  EXPECT_EQ(json["choices"][2]["text"], "c");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  Ask(parts, [](auto& request) { request.wishes.echo = true; });
  EXPECT_EQ(Json::parse(MakeOpenAiForm(parts)->Whole(answers))["choices"][2]["text"], "two c");
}

TEST(OpenAiCompletions, AnEchoComesBeforeItsAnswer) {
  FormParts parts = PartsFor(Endpoint::kCompletions);
  Ask(parts, [](auto& request) { request.wishes.echo = true; });
  const auto form = MakeOpenAiForm(parts);
  std::string texts[2];
  std::string stream = form->OnPiece({.index = 1, .text = "b", .tokens = {}, .timings = {}});
  stream += form->OnPiece({.index = 1, .text = "c", .tokens = {}, .timings = {}});
  stream += form->OnAnswerEnd(0, Said(""));
  for (const Json& event : DataOf(stream)) {
    const Json& choice = event["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
  }
  EXPECT_EQ(texts[0], "one ");
  EXPECT_EQ(texts[1], "two bc");
}

TEST(OpenAiCompletions, ChunksBeforeTheLastHaveNoUsage) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    FormParts parts = PartsFor(endpoint);
    parts.prompts.resize(1);
    Ask(parts, [](auto& request) { request.wishes.include_usage = true; });
    const auto form = MakeOpenAiForm(parts);
    std::string stream = form->OnPiece({.index = 0, .text = "b", .tokens = {}, .timings = {}});
    stream += form->OnAnswerEnd(0, Said("b"));
    const std::vector<Json> chunks = DataOf(stream + form->OnEnd(std::vector{Said("b")}));
    ASSERT_GE(chunks.size(), 3U);
    for (size_t i = 0; i + 1 < chunks.size(); ++i) {
      EXPECT_TRUE(chunks[i].contains("usage") && chunks[i]["usage"].is_null()) << chunks[i].dump();
    }
    EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 3);
    Ask(parts, [](auto& request) { request.wishes.include_usage = false; });
    for (const Json& chunk : DataOf(MakeOpenAiForm(parts)->OnAnswerEnd(0, Said("b"))))
      EXPECT_FALSE(chunk.contains("usage"));
  }
}

TEST(MessagesForm, HasNoFieldsOfOthers) {
  FormParts parts = PartsFor(Endpoint::kChatCompletions);
  parts.prompts.resize(1);
  EXPECT_FALSE(Json::parse(MakeAnthropicForm(parts)->Whole(std::vector{Said("b")})).contains("timings"));
  for (const Json& event : DataOf(MakeAnthropicForm(parts)->OnAnswerEnd(0, Said("b"))))
    EXPECT_FALSE(event.contains("timings"));
}

}  // namespace
}  // namespace longspec::api
