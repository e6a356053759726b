// SPDX-License-Identifier: Apache-2.0
#include "openai/responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace longspec::openai {
namespace {

GenerationResult Answer(const std::string& text, FinishReason reason, int64_t cached, int64_t evaluated) {
  GenerationResult answer;
  answer.text = text;
  answer.finish_reason = reason;
  answer.seed = 42;
  answer.timings = {.cache_n = cached,
                    .prompt_n = evaluated,
                    .prompt_ms = 500,
                    .predicted_n = 4,
                    .predicted_ms = 8,
                    .draft_n = 6,
                    .draft_n_accepted = 2};
  return answer;
}

const ResponseHead kHead{.id = "7", .created = 1700000000, .model = "m"};

TEST(OpenAiResponses, AChatCompletion) {
  const std::vector<GenerationResult> answers = {Answer("Four.", FinishReason::kStop, 10, 20)};
  EXPECT_EQ(
      ResponseJson(Endpoint::kChatCompletions, kHead, answers).dump(),
      R"({"id":"chatcmpl-7","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"Four.","refusal":null},"logprobs":null,"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":30,"completion_tokens":4,"total_tokens":34,)"
      R"("prompt_tokens_details":{"cached_tokens":10}},"seed":42,)"
      R"("timings":{"cache_n":10,"prompt_n":20,"prompt_ms":500.0,"prompt_per_second":40.0,"predicted_n":4,)"
      R"("predicted_ms":8.0,"predicted_per_second":500.0,"draft_n":6,"draft_n_accepted":2}})");
}

TEST(OpenAiResponses, ATextCompletionOfSeveral) {
  const std::vector<GenerationResult> answers = {Answer("a", FinishReason::kLength, 0, 30),
                                                 Answer("b", FinishReason::kContext, 29, 1)};
  EXPECT_EQ(ResponseJson(Endpoint::kCompletions, kHead, answers).dump(),
            R"({"id":"cmpl-7","object":"text_completion","created":1700000000,"model":"m","choices":[)"
            R"({"text":"a","index":0,"logprobs":null,"finish_reason":"length"},)"
            R"({"text":"b","index":1,"logprobs":null,"finish_reason":"length"}],)"
            R"("usage":{"prompt_tokens":30,"completion_tokens":8,"total_tokens":38,)"
            R"("prompt_tokens_details":{"cached_tokens":0}},"seed":42})");
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

}  // namespace
}  // namespace longspec::openai
