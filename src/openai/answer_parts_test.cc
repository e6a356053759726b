// SPDX-License-Identifier: Apache-2.0
#include "openai/answer_parts.h"

#include <gtest/gtest.h>

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

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
}  // namespace longspec::openai
