// SPDX-License-Identifier: Apache-2.0
//
// Lines of a batch are requests in OpenAI's form, and lines of answers are read again as they were written.
#include "api/batch_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/shared_fields.h"

namespace longspec::api {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

BatchLine ParseLine(const std::string& line) { return ParseBatchLine(line, OpenAiDefaults()); }

const Error* LineError(const BatchLine& line) { return std::get_if<Error>(&line.request); }

constexpr const char* kGood =
    R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}})";

TEST(BatchLines, ALineIsARequest) {
  const BatchLine chat = ParseLine(kGood);
  EXPECT_EQ(chat.custom_id, "a");
  ASSERT_EQ(LineError(chat), nullptr);
  EXPECT_EQ(std::get<Request>(chat.request).endpoint, Endpoint::kChatCompletions);
  EXPECT_EQ(std::get<Request>(chat.request).generation.n_predict, 4);
  const BatchLine text =
      ParseLine(R"({"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}})");
  ASSERT_EQ(LineError(text), nullptr);
  EXPECT_EQ(std::get<Request>(text.request).endpoint, Endpoint::kCompletions);
}

TEST(BatchLines, MistakesKeepTheCustomIdIfThereIsOne) {
  const struct {
    const char *line, *custom_id, *param;
  } cases[] = {
      {"not json", "", ""},
      {"[]", "", ""},
      {"{}", "", "custom_id"},
      {R"({"custom_id": 5})", "", "custom_id"},
      {R"({"custom_id": ""})", "", "custom_id"},
      {R"({"custom_id": "a"})", "a", "method"},
      {R"({"custom_id": "a", "method": "GET"})", "a", "method"},
      {R"({"custom_id": "a", "method": "POST"})", "a", "url"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/embeddings"})", "a", "url"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})", "a", "body"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": []})", "a", ""},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}})", "a", "prompt"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "stream": true}})",
       "a", "stream"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "logprobs": 1}})",
       "a", "logprobs"},
  };
  for (const auto& bad : cases) {
    const BatchLine line = ParseLine(bad.line);
    EXPECT_EQ(line.custom_id, bad.custom_id) << bad.line;
    ASSERT_NE(LineError(line), nullptr) << bad.line;
    EXPECT_EQ(LineError(line)->param, bad.param) << bad.line;
  }
  const BatchLine long_id = ParseLine(R"({"custom_id": ")" + std::string(kMaxCustomIdBytes + 1, 'x') + "\"}");
  EXPECT_EQ(long_id.custom_id, "");
  ASSERT_NE(LineError(long_id), nullptr);
  EXPECT_THAT(LineError(long_id)->message, HasSubstr("4096 bytes"));
}

TEST(BatchLines, AnAnswerHasOpenAisForm) {
  EXPECT_EQ(BatchAnswerJson("7", "a", {{"object", "chat.completion"}}).dump(),
            R"({"id":"batch_req_7","custom_id":"a","response":{"status_code":200,"request_id":"req_7",)"
            R"("body":{"object":"chat.completion"}},"error":null})");
}

TEST(BatchLines, AnErrorIsWhereReadersLookForIt) {
  const Error error{.message = "n must be 1", .param = "n", .code = "invalid_value"};
  const char* const object =
      R"({"message":"n must be 1","type":"invalid_request_error","param":"n","code":"invalid_value")";
  EXPECT_EQ(
      BatchErrorJson("7", "a", 3, error).dump(),
      R"({"id":"batch_req_7","custom_id":"a","response":{"status_code":400,"request_id":"req_7","body":{"error":)" +
          std::string(object) + R"(}}},"error":)" + object + R"(,"line":3}})");
  EXPECT_EQ(BatchErrorJson("7", "", 3, error).dump(),
            R"({"id":"batch_req_7","custom_id":null,"response":null,"error":)" + std::string(object) +
                R"(,"line":3}})");
  EXPECT_EQ(BatchErrorJson("7", "a", 1, {.message = "m"})["error"]["param"], nullptr);
}

TEST(BatchLines, WhatWasWrittenIsReadAgain) {
  const auto answered = ParseAnswerLine(BatchAnswerJson("7", "a\"b", Json::object()).dump());
  ASSERT_TRUE(answered.has_value());
  EXPECT_EQ(answered->custom_id, "a\"b");
  const auto refused = ParseAnswerLine(BatchErrorJson("7", "a", 3, {.message = "m"}).dump());
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->custom_id, "a");
  const auto unreadable = ParseAnswerLine(BatchErrorJson("7", "", 3, {.message = "m"}).dump());
  ASSERT_TRUE(unreadable.has_value());
  EXPECT_EQ(unreadable->custom_id, "");
  EXPECT_EQ(unreadable->line_number, 3);
  for (const char* other :
       {"", "hello", "{}", "[]", kGood, R"({"custom_id": null, "response": null, "error": null})",
        R"({"custom_id": 5, "response": null, "error": {"line": 3}})"}) {
    EXPECT_FALSE(ParseAnswerLine(other).has_value()) << other;
  }
}

TEST(BatchLines, EveryBeginningOfAnAnswerIsKnownAsOne) {
  const std::string line = BatchAnswerJson("7", "a", {{"x", 1}}).dump();
  for (size_t n = 0; n <= line.size(); ++n) EXPECT_TRUE(MayBeginAnswerLine(line.substr(0, n))) << n;
  for (const char* other : {"hello", "{\"custom_id\": \"a\"", "{\"id\":\"x\""})
    EXPECT_FALSE(MayBeginAnswerLine(other)) << other;
}

}  // namespace
}  // namespace longspec::api
