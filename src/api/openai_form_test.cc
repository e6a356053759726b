// SPDX-License-Identifier: Apache-2.0
//
// Answers in OpenAI's form, whole and in pieces, byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "api/openai.h"
#include "api/statistics.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

FinishedAnswer Answered(const std::string& text, FinishReason reason, int64_t cached, int64_t evaluated) {
  GenerationResult answer;
  answer.text = text;
  answer.finish_reason = reason;
  answer.seed = 42;
  answer.timings = {.cache_n = cached,
                    .prompt_n = evaluated,
                    .prompt_ms = 500,
                    .prompt_draft_ms = 2.5,
                    .predicted_n = 4,
                    .predicted_ms = 8,
                    .draft_n = 6,
                    .draft_n_accepted = 2};
  return {.result = answer};
}

const ResponseHead kHead{.id = "7", .created = 1700000000, .model = "m"};

TEST(OpenAiResponses, AChatCompletion) {
  const std::vector<FinishedAnswer> answers = {Answered("Four.", FinishReason::kStop, 10, 20)};
  EXPECT_EQ(
      ResponseJson(Endpoint::kChatCompletions, kHead, answers).dump(),
      R"({"id":"chatcmpl-7","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"Four.","refusal":null},"logprobs":null,"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":30,"completion_tokens":4,"total_tokens":34,)"
      R"("prompt_tokens_details":{"cached_tokens":10},)"
      R"("completion_tokens_details":{"accepted_prediction_tokens":2,"rejected_prediction_tokens":4}},"seed":42,)"
      R"("timings":{"cache_n":10,"prompt_n":20,"prompt_ms":500.0,"prompt_per_token_ms":25.0,"prompt_per_second":40.0,)"
      R"("prompt_draft_ms":2.5,)"
      R"("predicted_n":4,"predicted_ms":8.0,"predicted_per_token_ms":2.0,"predicted_per_second":500.0,"draft_n":6,)"
      R"("draft_n_accepted":2}})");
}

TEST(OpenAiResponses, ATextCompletionOfSeveral) {
  const std::vector<FinishedAnswer> answers = {Answered("a", FinishReason::kLength, 0, 30),
                                               Answered("b", FinishReason::kContext, 29, 1)};
  EXPECT_EQ(
      ResponseJson(Endpoint::kCompletions, kHead, answers).dump(),
      R"({"id":"cmpl-7","object":"text_completion","created":1700000000,"model":"m","choices":[)"
      R"({"text":"a","index":0,"logprobs":null,"finish_reason":"length"},)"
      R"({"text":"b","index":1,"logprobs":null,"finish_reason":"length"}],)"
      R"("usage":{"prompt_tokens":30,"completion_tokens":8,"total_tokens":38,)"
      R"("prompt_tokens_details":{"cached_tokens":0},)"
      R"("completion_tokens_details":{"accepted_prediction_tokens":4,"rejected_prediction_tokens":8}},"seed":42})");
}

const std::vector<TokenReport> kTokens = {
    {.token = {.id = 7, .bytes = "Fo", .logprob = -0.5F},
     .likeliest = {{.id = 7, .bytes = "Fo", .logprob = -0.5F}, {.id = 9, .bytes = "\xE2", .logprob = -2.0F}},
     .source = "ngram",
     .text_begin = 3,
     .text_end = 5,
     .text_offset = 2},
    {.token = {.id = 8, .bytes = "ur", .logprob = -0.25F}, .text_begin = 5, .text_end = 7, .text_offset = 4}};

TEST(OpenAiResponses, PiecesOfAStream) {
  const Shown shown{.logprobs = true, .sources = true, .token_ids = true};
  const auto piece = PieceChoiceJson(Endpoint::kChatCompletions, 1, "Four", kTokens, shown);
  EXPECT_EQ(piece["delta"]["content"], "Four");
  EXPECT_EQ(piece["index"], 1);
  EXPECT_EQ(piece["logprobs"]["content"].size(), 2U);
  EXPECT_EQ(piece["logprobs"]["content"][0]["bytes"].dump(), "[70,111]");
  EXPECT_EQ(piece["logprobs"]["content"][0]["top_logprobs"][1]["bytes"].dump(), "[226]");
  EXPECT_EQ(piece["token_sources"].dump(), R"(["ngram",null])");
  EXPECT_EQ(piece["tokens"].dump(), "[7,8]");
  EXPECT_TRUE(piece["finish_reason"].is_null());
  EXPECT_EQ(ChunkJson(Endpoint::kChatCompletions, kHead)["object"], "chat.completion.chunk");
  EXPECT_EQ(FirstChoiceJson(1)["delta"].dump(), R"({"role":"assistant","content":null})");
  const auto last = LastChoiceJson(Endpoint::kChatCompletions, 1, FinishReason::kContext);
  EXPECT_EQ(last["delta"].dump(), "{}");
  EXPECT_EQ(last["finish_reason"], "length");
}

TEST(OpenAiResponses, ATextCompletionHasListsOfChances) {
  const auto piece = PieceChoiceJson(Endpoint::kCompletions, 0, "Four", kTokens, {.logprobs = true});
  EXPECT_EQ(piece["text"], "Four");
  EXPECT_EQ(piece["logprobs"]["text_offset"].dump(), "[2,4]");
  EXPECT_EQ(piece["logprobs"]["token_logprobs"].dump(), "[-0.5,-0.25]");
  EXPECT_EQ(piece["logprobs"]["tokens"].dump(), R"(["Fo","ur"])");
  EXPECT_EQ(piece["logprobs"]["top_logprobs"][0]["Fo"], -0.5);
  EXPECT_FALSE(piece.contains("tokens"));
}

TEST(OpenAiResponses, NothingIsDividedByZero) {
  EXPECT_EQ(TimingsJson({})["prompt_per_second"], 0.0);
  EXPECT_EQ(TimingsJson({})["predicted_per_second"], 0.0);
}

TEST(OpenAiErrors, AStatusBecomesAnErrorOfTheSideThatCausedIt) {
  EXPECT_EQ(RefusalOf(ResourceExhausted("9 tokens, 8 fit")).status_code, 400);
  EXPECT_EQ(RefusalOf(ResourceExhausted("9 tokens, 8 fit")).code, "context_length_exceeded");
  EXPECT_EQ(RefusalOf(InvalidArgument("m")).type, "invalid_request_error");
  EXPECT_EQ(FailureOf(InvalidArgument("m")).status_code, 400);
  EXPECT_EQ(FailureOf(ResourceExhausted("m")).status_code, 503);
  EXPECT_EQ(FailureOf(IoError("m")).status_code, 500);
  EXPECT_EQ(FailureOf(IoError("m")).type, "server_error");
  EXPECT_EQ(FailureOf(IoError("m")).message, "m");
}

std::shared_ptr<const chat::CallForm> HermesForm() {
  return std::make_shared<const chat::CallForm>(chat::CallForm{.format = chat::ToolFormat::kHermes});
}

TEST(AnswerParts, AreMovedToTheirPlaceInAResponse) {
  Json response = {
      {"choices",
       {{{"index", 0},
         {"message",
          {{"role", "assistant"},
           {"content", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"}}},
         {"finish_reason", "stop"}},
        {{"index", 1}, {"message", {{"role", "assistant"}, {"content", "no"}}}, {"finish_reason", "stop"}},
        {{"index", 2},
         {"message",
          {{"role", "assistant"}, {"content", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a"}}},
         {"finish_reason", "stop"}}}}};
  MoveParts({.thinking = {}, .calls = HermesForm()}, "7", &response);
  EXPECT_EQ(response["choices"][0]["message"].dump(),
            R"({"role":"assistant","content":null,"tool_calls":[{"id":"call_7_0","type":"function",)"
            R"("function":{"name":"now","arguments":"{}"}}]})");
  EXPECT_EQ(response["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(response["choices"][1]["message"]["content"], "no");
  EXPECT_EQ(response["choices"][1]["finish_reason"], "stop");
  EXPECT_FALSE(response["choices"][1]["message"].contains("tool_calls"));
  // A stop string has cut it.
  EXPECT_EQ(response["choices"][2]["message"]["tool_calls"][0]["function"]["arguments"], "{\"a");
  EXPECT_EQ(response["choices"][2]["finish_reason"], "stop");
}

TEST(AnswerParts, DeltasAsAStreamHasThem) {
  EXPECT_EQ(ToolCallDeltaJson({.index = 1, .name = "f", .arguments = ""}, "9", 0).dump(),
            R"({"index":1,"id":"call_9_1","type":"function","function":{"name":"f","arguments":""}})");
  EXPECT_EQ(ToolCallDeltaJson({.index = 1, .name = "", .arguments = "{}"}, "9", 0).dump(),
            R"({"index":1,"function":{"arguments":"{}"}})");
  // Calls of another choice have other names.
  EXPECT_EQ(ToolCallDeltaJson({.index = 1, .name = "f", .arguments = ""}, "9", 2)["id"], "call_9_2_1");
}

}  // namespace
}  // namespace longspec::api
