// SPDX-License-Identifier: Apache-2.0
//
// What clients send of a conversation and beside it: thoughts, turns of the system's, fields of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/anthropic.h"
#include "api/fields.h"
#include "api/responses.h"
#include "api/shared_fields.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::variant<Request, Error> ParsedMessages(const std::string& messages, const std::string& fields,
                                            bool count_only = false) {
  const auto body = ParseJson(R"({"model": "x", "max_tokens": 9, "messages": )" + messages + fields + "}");
  return (count_only ? ParseCountTokensRequest : ParseMessagesRequest)(std::get<Json>(body),
                                                                       OpenAiDefaults());
}

Request OfMessages(const std::string& messages, const std::string& fields = "") {
  auto parsed = ParsedMessages(messages, fields);
  const auto* error = std::get_if<Error>(&parsed);
  if (error == nullptr) return std::get<Request>(std::move(parsed));
  ADD_FAILURE() << error->message;
  return {};
}

constexpr const char* kQuestion = R"([{"role": "user", "content": "?"}])";

TEST(MessagesHistory, ThoughtsBelongToTheMessageThatFollows) {
  const auto turns = OfMessages(R"([
      {"role": "user", "content": "?"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "a tool", "signature": "s"}, {"type": "thinking", "thinking": "!"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "4"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "so"}, {"type": "text", "text": "Four."}]},
      {"role": "user", "content": "Sure?"}])")
                         .generation.messages;
  ASSERT_EQ(turns.size(), 5U);
  const Json call = Json::parse(turns[1].more);
  EXPECT_EQ(turns[1].content, "");
  EXPECT_EQ(call["reasoning_content"], "a tool!");
  EXPECT_EQ(call["tool_calls"].size(), 1U);
  EXPECT_EQ(turns[2].role, "tool");
  EXPECT_EQ(turns[3].content, "Four.");
  EXPECT_EQ(Json::parse(turns[3].more)["reasoning_content"], "so");
  EXPECT_EQ(turns[4].more, "");
}

TEST(MessagesHistory, TheSystemMayHaveTurns) {
  const auto turns = OfMessages(R"([{"role": "user", "content": "?"},
      {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
      {"role": "system", "content": "Now."}])",
                                R"(, "system": "You help.")")
                         .generation.messages;
  ASSERT_EQ(turns.size(), 4U);
  EXPECT_EQ(turns[0].role + turns[2].role + turns[3].role, "systemsystemsystem");
  EXPECT_EQ(turns[2].content, "Be brief.");
  EXPECT_EQ(turns[3].content, "Now.");
}

TEST(MessagesHistory, ALastTurnOfTheAssistantsIsGoneOnWith) {
  const std::string begun = R"([{"role": "user", "content": "?"}, {"role": "assistant", "content": "Well"}])";
  EXPECT_EQ(OfMessages(begun).generation.prompt_end, PromptEnd::kContinued);
  EXPECT_EQ(OfMessages(kQuestion).generation.prompt_end, PromptEnd::kNewTurn);
  EXPECT_EQ(OfMessages(begun, R"(, "continue_final_message": false)").generation.prompt_end,
            PromptEnd::kNewTurn);
}

TEST(MessagesFields, WhatClaudeCodeSendsIsTaken) {
  const Request request = OfMessages(kQuestion, R"(, "thinking": {"type": "adaptive"}, "stream": true,
      "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
      "output_config": {"effort": "high"}, "metadata": {"user_id": "u"}, "temperature": 1, "max_tokens": 32000)");
  EXPECT_EQ(request.generation.template_variables, R"({"reasoning_effort":"high","enable_thinking":true})");
  EXPECT_THAT(request.unknown, IsEmpty());
  EXPECT_THAT(request.ignored, ElementsAre("context_management"));
  EXPECT_EQ(request.generation.n_predict, 32000);
  const Request limited =
      OfMessages(kQuestion, R"(, "thinking": {"type": "enabled", "budget_tokens": 2048})");
  EXPECT_EQ(limited.generation.template_variables, R"({"enable_thinking":true})");
  EXPECT_THAT(limited.ignored, ElementsAre("thinking.budget_tokens"));
  EXPECT_EQ(OfMessages(kQuestion, R"(, "thinking": {"type": "disabled"})").generation.template_variables,
            R"({"enable_thinking":false})");
  for (const int limit : {-1, 0})
    EXPECT_EQ(OfMessages(kQuestion, R"(, "max_tokens": )" + std::to_string(limit)).generation.n_predict,
              limit);
}

TEST(MessagesFields, WhatIsNotOfferedIsRefusedByName) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"(, "container": "c1")", "container is not supported: nothing is run here"},
      {R"(, "mcp_servers": [{}])", "mcp_servers is not supported"},
      {R"(, "n": 2)", "n is not supported: /v1/chat/completions gives several"},
      {R"(, "logprobs": true)", "logprobs is not supported"},
      {R"(, "thinking": {"type": "deep"})", "thinking.type must be enabled, adaptive or disabled"},
      {R"(, "max_tokens": -2)", "max_tokens must be from -1"},
      {R"(, "messages": [{"role": "tool", "content": "x"}])",
       "messages[0].role must be user, assistant or system"},
      {R"(, "chat_template": "x")", "chat_template is not supported"}};
  for (const auto& [fields, message] : wrong) {
    const auto parsed = ParsedMessages(kQuestion, fields);
    const auto* error = std::get_if<Error>(&parsed);
    ASSERT_NE(error, nullptr) << fields;
    EXPECT_THAT(error->message, HasSubstr(message));
  }
}

// A tool that is deferred is one from where it was found on; others come and go in the middle.
TEST(MessagesHistory, ToolsMayComeLater) {
  const std::string tools = R"(, "tools": [
      {"name": "ToolSearch", "input_schema": {"type": "object"}},
      {"name": "weather", "description": "d", "input_schema": {"type": "object"}, "defer_loading": true},
      {"name": "tides", "input_schema": {"type": "object"}, "defer_loading": true}])";
  const auto names = [](const Request& request) {
    std::vector<std::string> all;
    for (const auto& tool : request.tools.tools) all.push_back(tool.name);
    return all;
  };
  EXPECT_THAT(names(OfMessages(kQuestion, tools)), ElementsAre("ToolSearch"));
  const std::string found = R"({"role": "user", "content": "?"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
        {"type": "text", "text": "Found:"}, {"type": "tool_reference", "tool_name": "weather"}]}]})";
  const Request request = OfMessages("[" + found + "]", tools);
  EXPECT_THAT(names(request), ElementsAre("ToolSearch", "weather"));
  EXPECT_FALSE(request.tools.tools[0].is_announced);
  EXPECT_TRUE(request.tools.tools[1].is_announced);
  const auto& turns = request.generation.messages;
  ASSERT_EQ(turns.size(), 3U);
  EXPECT_EQ(turns[2].role, "tool");
  EXPECT_EQ(
      turns[2].content,
      "Found:\n<tools>\n{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"d\","
      "\"parameters\":{\"type\":\"object\"}}}\n</tools>");
  const auto later = [&](const std::string& changes) {
    return OfMessages("[" + found + R"(, {"role": "system", "content": [)" + changes + "]}]", tools);
  };
  const Request more =
      later(R"({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "weather"}},
      {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "tides"}},
      {"type": "tool_addition", "tool": {"type": "tool_definition", "definition":
        {"name": "now", "input_schema": {"type": "object"}}}},
      {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "ToolSearch"}})");
  EXPECT_THAT(names(more), ElementsAre("tides", "now"));
  EXPECT_THAT(more.generation.messages[3].content, HasSubstr("weather can no longer be called.\n<tools>"));
  const Request again =
      later(R"({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "weather"}},
      {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "weather"}})");
  EXPECT_THAT(names(again), ElementsAre("ToolSearch", "weather"));
  // One of them may be asked for.
  EXPECT_EQ(OfMessages("[" + found + "]", tools + R"(, "tool_choice": {"type": "tool", "name": "weather"})")
                .tools.choice,
            chat::ToolChoice::kRequired);
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"type": "tool_addition"})", "content[0].tool is missing"},
      {R"({"type": "tool_addition", "tool": {"type": "tool_reference"}})", "tool.name is missing"},
      {R"({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "a b"}}})",
       "tool.definition.name must have"}};
  for (const auto& [block, message] : wrong) {
    const auto parsed =
        ParsedMessages(R"([{"role": "user", "content": [)" + std::string(block) + "]}]", tools);
    const auto* error = std::get_if<Error>(&parsed);
    ASSERT_NE(error, nullptr) << block;
    EXPECT_THAT(error->message, HasSubstr(message));
  }
}

Request OfResponses(const std::string& fields) {
  const auto body = ParseJson(R"({"model": "x", )" + fields + "}");
  auto parsed = ParseResponsesRequest(std::get<Json>(body), OpenAiDefaults());
  const auto* error = std::get_if<Error>(&parsed);
  if (error == nullptr) return std::get<Request>(std::move(parsed));
  ADD_FAILURE() << error->message;
  return {};
}

TEST(ResponsesHistory, ThoughtsBelongToTheItemThatFollows) {
  const auto turns = OfResponses(R"("input": [
      {"role": "user", "content": "?"},
      {"type": "reasoning", "id": "r1", "summary": [], "content": [{"type": "reasoning_text", "text": "a tool"}]},
      {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "4"},
      {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "x"},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Four."}]},
      {"type": "reasoning", "summary": []},
      {"role": "user", "content": "Sure?"}])")
                         .generation.messages;
  ASSERT_EQ(turns.size(), 5U);
  EXPECT_EQ(Json::parse(turns[1].more)["reasoning_content"], "a tool");
  EXPECT_EQ(Json::parse(turns[1].more)["tool_calls"].size(), 1U);
  EXPECT_EQ(turns[3].content, "Four.");
  EXPECT_EQ(Json::parse(turns[3].more)["reasoning_content"], "so");
}

TEST(ResponsesHistory, CallsOfToolsThatAreNoFunctionsAreCalls) {
  const auto turns = OfResponses(R"("input": [
      {"role": "user", "content": "?"},
      {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin Patch\n"},
      {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
      {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search", "query": "q"}},
      {"type": "local_shell_call", "id": "l1", "call_id": "c2", "status": "completed",
       "action": {"type": "exec", "command": ["ls", "-l"], "env": {}}},
      {"type": "local_shell_call_output", "id": "c2", "output": "a.txt"}])")
                         .generation.messages;
  ASSERT_EQ(turns.size(), 5U);
  const Json patch = Json::parse(turns[1].more)["tool_calls"][0];
  EXPECT_EQ(patch["id"], "c1");
  EXPECT_EQ(patch["function"]["name"], "apply_patch");
  EXPECT_EQ(patch["function"]["arguments"], R"({"input":"*** Begin Patch\n"})");
  EXPECT_EQ(turns[2].content, "done");
  const Json shell = Json::parse(turns[3].more)["tool_calls"][0];
  EXPECT_EQ(shell["function"]["name"], "local_shell");
  EXPECT_EQ(shell["function"]["arguments"], R"({"command":["ls","-l"],"env":{}})");
  EXPECT_EQ(turns[4].content, "a.txt");
  EXPECT_EQ(Json::parse(turns[4].more)["tool_call_id"], "c2");
}

TEST(ResponsesFields, WhatCodexSendsIsTaken) {
  const Request request = OfResponses(R"("input": "?", "reasoning": {"effort": "medium", "summary": "auto"},
      "include": ["reasoning.encrypted_content"], "truncation": "auto", "store": false, "prompt_cache_key": "k",
      "text": {"verbosity": "low"}, "parallel_tool_calls": false, "stream": true)");
  EXPECT_EQ(request.generation.template_variables, R"({"reasoning_effort":"medium"})");
  EXPECT_THAT(request.unknown, IsEmpty());
  EXPECT_THAT(request.ignored, ElementsAre("truncation", "text.verbosity"));
  EXPECT_THAT(OfResponses(R"("input": "?", "tools": [{"type": "local_shell"}, {"type": "custom", "name": "f"},
                  {"type": "custom", "name": "g"}])")
                  .ignored,
              ElementsAre("tools: local_shell", "tools: custom"));
  EXPECT_THAT(OfResponses(R"("input": "?", "client_metadata": {"session_id": "s"})").unknown, IsEmpty());
}

TEST(ResponsesFields, ChancesAreRefusedByName) {
  const auto body = ParseJson(R"({"input": "?", "include": ["message.output_text.logprobs"]})");
  const auto parsed = ParseResponsesRequest(std::get<Json>(body), OpenAiDefaults());
  const auto* error = std::get_if<Error>(&parsed);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->param, "include");
  EXPECT_THAT(error->message, HasSubstr("/v1/chat/completions gives chances"));
}

}  // namespace
}  // namespace longspec::api
