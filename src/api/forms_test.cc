// SPDX-License-Identifier: Apache-2.0
//
// Tools in each API: what is asked, and the same answer whole and as a stream, however its text is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/answer_form.h"
#include "api/anthropic.h"
#include "api/apply_dialect.h"
#include "api/fields.h"
#include "api/openai.h"
#include "api/responses.h"
#include "api/shared_fields.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using chat::ToolChoice;
using chat::ToolFormat;
using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// --- Requests. ---

constexpr const char* kMessages = R"({"model": "x", "max_tokens": 9,
  "tools": [{"name": "weather", "description": "d",
             "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}},
            {"name": "now", "type": "custom", "strict": true}],
  "messages": [
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
      {"type": "text", "text": "Let me see."},
      {"type": "tool_use", "id": "t1", "name": "weather", "input": {"b": 18446744073709551617, "a": 0.1}},
      {"type": "tool_use", "id": "t2", "name": "now", "input": {}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
      {"type": "tool_result", "tool_use_id": "t2"},
      {"type": "text", "text": "And?"}]}]})";

Json With(const char* body, const std::string& change) {
  Json json = LoadJson(body);
  json.update(Json::parse(change));
  return json;
}

std::variant<Request, Error> Messages(const std::string& change) {
  return ParseMessagesRequest(With(kMessages, change), OpenAiDefaults());
}

Request Chat(std::variant<Request, Error> parsed) {
  if (const auto* error = std::get_if<Error>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<Request>(std::move(parsed));
}

TEST(Anthropic, ToolsAndTheirResultsBecomeAChat) {
  const Request request = Chat(Messages("{}"));
  ASSERT_EQ(request.tools.tools.size(), 2U);
  EXPECT_EQ(request.tools.choice, ToolChoice::kAuto);
  EXPECT_TRUE(request.tools.parallel);
  EXPECT_EQ(request.tools.tools[0].definition.dump(),
            R"({"type":"function","function":{"name":"weather","description":"d",)"
            R"("parameters":{"type":"object","properties":{"b":{},"a":{}}}}})");
  EXPECT_TRUE(request.tools.tools[1].strict);
  const auto& turns = request.generation.messages;
  ASSERT_EQ(turns.size(), 5U);
  EXPECT_EQ(turns[1].content, "Let me see.");
  const Json calls = Json::parse(turns[1].more)["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["function"]["arguments"], R"({"b":18446744073709551617,"a":0.1})");
  EXPECT_EQ(turns[2].role, "tool");
  EXPECT_EQ(turns[2].content, "rain");
  EXPECT_EQ(turns[2].more, R"({"tool_call_id":"t1"})");
  EXPECT_EQ(turns[3].content, "");
  EXPECT_EQ(turns[4].role, "user");
  EXPECT_EQ(turns[4].content, "And?");
}

TEST(Anthropic, ChoicesOfTools) {
  EXPECT_EQ(Chat(Messages(R"({"tool_choice": {"type": "none"}})")).tools.choice, ToolChoice::kNone);
  EXPECT_EQ(Chat(Messages(R"({"tool_choice": {"type": "any"}})")).tools.choice, ToolChoice::kRequired);
  const Request one =
      Chat(Messages(R"({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})"));
  EXPECT_EQ(one.tools.choice, ToolChoice::kAuto);
  EXPECT_FALSE(one.tools.parallel);
  const Request named = Chat(Messages(R"({"tool_choice": {"type": "tool", "name": "now"}})"));
  ASSERT_EQ(named.tools.tools.size(), 1U);
  EXPECT_EQ(named.tools.tools[0].name, "now");
  EXPECT_EQ(Chat(Messages(R"({"tools": null})")).tools.choice, ToolChoice::kNone);
}

TEST(Anthropic, FormsOfAnswers) {
  const GrammarText schema = {GrammarText::Kind::kJsonSchema, R"({"type":"null"})"};
  for (const char* field :
       {R"({"output_config": {"format": {"type": "json_schema", "schema": {"type": "null"}}}})",
        R"({"output_format": {"type": "json_schema", "schema": {"type": "null"}}})"}) {
    const Request request = Chat(Messages(field));
    EXPECT_EQ(request.generation.grammar, schema);
    EXPECT_THAT(request.grammar_field, HasSubstr("output_"));
  }
}

TEST(Anthropic, MistakesAreNamed) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"tools": 5})", "tools must be a list"},
      {R"({"tools": [{"name": "a b"}]})", "tools[0].name must have"},
      {R"({"tools": [{"type": "web_search_20250305", "name": "web_search"}]})", "tools[0].type \"web_search"},
      {R"({"tools": [{"name": "f"}, {"name": "f"}]})", "two functions with the name f"},
      {R"({"tools": [{"name": "f", "input_schema": "x"}]})", "tools[0].input_schema must be a JSON schema"},
      {R"({"tool_choice": "auto"})", "tool_choice must be an object"},
      {R"({"tool_choice": {"type": "some"}})", "tool_choice.type must be auto, any"},
      {R"({"tool_choice": {"type": "tool", "name": "f"}})", "tool_choice.name is not that of a tool"},
      {R"({"tools": [], "tool_choice": {"type": "any"}})", "needs tools"},
      {R"({"output_config": {"format": {"type": "xml"}}})", "output_config.format.type must be"},
      {R"({"output_format": {"type": "json_object"}, "grammar": "root ::= \"a\""})", "beside grammar"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]})",
       "messages[0].content[0].type \"tool_use\" is not supported in a message of the user"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]})",
       "messages[0].content[0].id is missing"},
      {R"({"messages": [{"role": "assistant",
           "content": [{"type": "tool_use", "id": "a", "name": "f", "input": 1}]}]})",
       "messages[0].content[0].input must be an object"},
      {R"({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
            "content": [{"type": "image"}]}]}]})",
       "messages[0].content[0].content[0].type"}};
  for (const auto& [change, message] : wrong) {
    const auto parsed = Messages(change);
    const auto* error = std::get_if<Error>(&parsed);
    ASSERT_NE(error, nullptr) << change;
    EXPECT_THAT(error->message, HasSubstr(message));
    EXPECT_EQ(error->status_code, 400);
  }
}

constexpr const char* kResponses = R"({"model": "x", "instructions": "Be brief.",
  "tools": [{"type": "web_search"}, {"type": "function", "name": "weather", "strict": true,
             "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}],
  "input": [{"role": "user", "content": "?"},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"a\": 1}"},
            {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sun"}]}]})";

std::variant<Request, Error> Responses(const std::string& change) {
  return ParseResponsesRequest(With(kResponses, change), OpenAiDefaults());
}

TEST(Responses, FunctionsAndTheirOutputsBecomeAChat) {
  auto parsed = Responses(R"({"parallel_tool_calls": false, "metadata": {"a": "b"}})");
  ASSERT_TRUE(std::holds_alternative<Request>(parsed)) << std::get<Error>(parsed).message;
  const auto& request = std::get<Request>(parsed);
  ASSERT_EQ(request.tools.tools.size(), 1U);
  EXPECT_TRUE(request.tools.tools[0].strict);
  EXPECT_FALSE(request.tools.parallel);
  EXPECT_EQ(request.repeated["tools"].size(), 2U);
  EXPECT_EQ(request.repeated["metadata"]["a"], "b");
  const auto& turns = request.generation.messages;
  ASSERT_EQ(turns.size(), 5U);
  EXPECT_EQ(turns[0].content, "Be brief.");
  EXPECT_EQ(turns[2].content, "Let me see.");
  const Json calls = Json::parse(turns[2].more)["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["function"]["arguments"], "{\"a\": 1}");
  EXPECT_EQ(turns[3].content, "rain");
  EXPECT_EQ(turns[4].content, "sun");
  EXPECT_EQ(turns[4].more, R"({"tool_call_id":"c2"})");
}

TEST(Responses, ChoicesAndForms) {
  const auto chat = [](const std::string& change) {
    auto parsed = Responses(change);
    const auto* error = std::get_if<Error>(&parsed);
    EXPECT_EQ(error, nullptr) << error->message;
    return error == nullptr ? std::get<Request>(parsed) : Request();
  };
  EXPECT_EQ(chat("{}").tools.choice, ToolChoice::kAuto);
  EXPECT_EQ(chat(R"({"tool_choice": "none"})").tools.choice, ToolChoice::kNone);
  EXPECT_EQ(chat(R"({"tool_choice": "required"})").tools.choice, ToolChoice::kRequired);
  const Request named = chat(R"({"tool_choice": {"type": "function", "name": "weather"}})");
  EXPECT_EQ(named.tools.choice, ToolChoice::kRequired);
  EXPECT_FALSE(named.tools.parallel);
  const Request formed = chat(R"({"tools": null, "text": {"format": {"type": "json_schema", "name": "n",
                                     "strict": true, "schema": {"type": "null"}}}})");
  EXPECT_EQ(formed.generation.grammar, (GrammarText{GrammarText::Kind::kJsonSchema, R"({"type":"null"})"}));
  EXPECT_EQ(formed.grammar_field, "text.format");
}

TEST(Responses, MistakesAreNamed) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"tools": [{"type": "custom", "name": "g"}, {"name": "f"}]})", "tools[1].type"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].name"},
      {R"({"tool_choice": {"type": "function", "name": "f"}})", "tool_choice.name"},
      {R"({"tool_choice": {"type": "web_search"}})", "tool_choice"},
      {R"({"tools": [], "tool_choice": "required"})", "tool_choice"},
      {R"({"text": {"format": {"type": "json_schema"}}})", "text.format.json_schema"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]})", "input[0].arguments"},
      {R"({"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]})",
       "input[0].output[0].type"},
      {R"({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]})", "input[0].input"},
      {R"({"input": [{"type": "local_shell_call", "call_id": "c"}]})", "input[0].action"},
      {R"({"input": [{"type": "custom_tool_call_output", "output": "a"}]})", "input[0].call_id"},
      {R"({"input": [{"type": "computer_call"}]})", "input[0].type"}};
  for (const auto& [change, param] : wrong) {
    const auto parsed = Responses(change);
    const auto* error = std::get_if<Error>(&parsed);
    ASSERT_NE(error, nullptr) << change;
    EXPECT_EQ(error->param, param);
  }
}

// --- Answers. ---

const std::string kCall =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"B\\\"o\"}}\n</tool_call>";
const std::string kNow = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

struct Case {
  std::string text;
  FinishReason reason = FinishReason::kStop;
  std::string stop_string = {};
};
std::vector<Case> Cases() {
  return {{"Let me see.\n" + kCall + "\n" + kNow},
          {kCall},
          {"Nothing <tool_c to call"},
          {""},
          {kCall + " and more"},
          {kCall.substr(0, 60), FinishReason::kLength},
          {kCall.substr(0, 60), FinishReason::kStop, "o"},
          {"cut", FinishReason::kLength},
          {"<think>\nhm, " + kNow + "?\n</think>\n\n" + kCall},
          {"<think>a</think>\nSo <think>b</think>"},
          {"<think>\nand so on </thi", FinishReason::kLength}};
}

FinishedAnswer AnswerOf(const Case& one) {
  FinishedAnswer answer;
  answer.result.text = one.text;
  answer.result.finish_reason = one.reason;
  answer.result.stop_string = one.stop_string;
  return answer;
}

FormParts PartsOf(int n = 1, bool return_tokens = false) {
  const chat::CallForm calls{.format = ToolFormat::kHermes};
  Request request;
  request.n = n;
  request.wishes.return_tokens = return_tokens;
  FormParts parts{.head = {.id = "7", .created = 1, .model = "m"},
                  .request = std::make_shared<const Request>(std::move(request)),
                  .reading = {.thinking = chat::ThinkingForm{.tags = {"<think>", "</think>"}},
                              .calls = std::make_shared<const chat::CallForm>(calls)}};
  return parts;
}

FormParts PartsRepeating(const Json& repeated) {
  Request request;
  request.repeated = repeated;
  FormParts parts = PartsOf();
  parts.request = std::make_shared<const Request>(std::move(request));
  return parts;
}

// The data of all events of a stream.
std::vector<Json> EventsOf(const std::string& stream) {
  std::vector<Json> events;
  for (size_t at = stream.find("data: "); at != std::string::npos; at = stream.find("data: ", at + 1)) {
    const std::string data = stream.substr(at + 6, stream.find("\n\n", at) - at - 6);
    if (data != "[DONE]") events.push_back(Json::parse(data));
  }
  return events;
}

// The text of each answer in pieces of `piece` bytes, answers in turn.
std::vector<Json> Stream(AnswerForm& form, const std::vector<FinishedAnswer>& answers, size_t piece) {
  std::string stream;
  const auto n = static_cast<int>(answers.size());
  for (int i = 0; i < n; ++i) stream += form.OnStart({.index = i, .n_prompt = 5, .n_cached = 2});
  for (size_t at = 0; at < 400; at += piece) {
    for (int i = 0; i < n; ++i) {
      const std::string& text = answers[static_cast<size_t>(i)].result.text;
      if (at >= text.size()) continue;
      stream += form.OnPiece(
          {.index = i, .text = std::string_view(text).substr(at, piece), .tokens = {}, .timings = {}});
    }
  }
  for (int i = 0; i < n; ++i) stream += form.OnAnswerEnd(i, answers[static_cast<size_t>(i)]);
  return EventsOf(stream + form.OnEnd(answers));
}

TEST(OpenAiForm, AStreamIsTheWholeAnswerHoweverItIsCut) {
  std::vector<FinishedAnswer> answers;
  for (const Case& one : Cases()) answers.push_back(AnswerOf(one));
  const auto n = static_cast<int>(answers.size());
  const Json whole = Json::parse(MakeOpenAiForm(PartsOf(n))->Whole(answers));
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "Let me see.\n");
  EXPECT_EQ(whole["choices"][0]["message"]["tool_calls"][1]["function"]["name"], "now");
  EXPECT_EQ(whole["choices"][8]["message"]["reasoning_content"], "hm, " + kNow + "?");
  EXPECT_EQ(whole["choices"][8]["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(whole["choices"][9]["message"]["content"], "So <think>b</think>");
  EXPECT_EQ(whole["choices"][10]["message"]["content"], "");
  EXPECT_FALSE(whole["choices"][0]["message"].contains("reasoning_content"));
  const char* reasons[] = {"tool_calls", "tool_calls", "stop",       "stop", "tool_calls", "length",
                           "stop",       "length",     "tool_calls", "stop", "length"};
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(whole["choices"][i]["finish_reason"], reasons[i]) << i;
  for (const size_t piece : {1, 2, 3, 7, 400}) {
    const auto form = MakeOpenAiForm(PartsOf(n));
    std::vector<Json> messages(answers.size(),
                               {{"role", "assistant"}, {"content", nullptr}, {"refusal", nullptr}});
    std::vector<Json> told(answers.size());
    for (const Json& event : Stream(*form, answers, piece)) {
      for (const Json& choice : event["choices"]) {
        Json& message = messages[choice["index"].get<size_t>()];
        if (!choice["finish_reason"].is_null()) told[choice["index"].get<size_t>()] = choice["finish_reason"];
        const Json& delta = choice["delta"];
        if (delta.contains("content") && delta["content"].is_string()) {
          if (message["content"].is_null()) message["content"] = "";
          message["content"].get_ref<std::string&>() += delta["content"].get<std::string>();
        }
        if (delta.contains("reasoning_content")) {
          if (!message.contains("reasoning_content")) message["reasoning_content"] = "";
          message["reasoning_content"].get_ref<std::string&>() +=
              delta["reasoning_content"].get<std::string>();
        }
        if (!delta.contains("tool_calls")) continue;
        for (Json call : delta["tool_calls"]) {
          const size_t at = call["index"];
          call.erase("index");
          Json& calls = message["tool_calls"];
          if (at == calls.size()) {
            calls.push_back(call);
          } else {
            EXPECT_FALSE(call.contains("id"));
            calls[at]["function"]["arguments"].get_ref<std::string&>() +=
                call["function"]["arguments"].get<std::string>();
          }
        }
      }
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      Json expected = whole["choices"][i]["message"];
      if (expected["content"] == "") expected["content"] = nullptr;  // of nothing there are no pieces
      EXPECT_EQ(messages[i], expected) << "in pieces of " << piece;
      EXPECT_EQ(told[i], reasons[i]);
    }
  }
}

TEST(OpenAiForm, TokensAreShownOnceAlsoWhereTheyAreCalls) {
  const auto form = MakeOpenAiForm(PartsOf(1, true));
  std::vector<TokenReport> reports(kCall.size());
  std::string stream;
  for (size_t i = 0; i < kCall.size(); ++i) {
    reports[i].token.id = static_cast<int32_t>(i);
    stream += form->OnPiece({.index = 0,
                             .text = std::string_view(kCall).substr(i, 1),
                             .tokens = std::span(reports).subspan(i, 1),
                             .timings = {}});
  }
  std::vector<int32_t> shown;
  for (const Json& event : EventsOf(stream)) {
    for (const Json& token : event["choices"][0].value("tokens", Json::array())) shown.push_back(token);
  }
  ASSERT_EQ(shown.size(), kCall.size());
  for (size_t i = 0; i < shown.size(); ++i) EXPECT_EQ(shown[i], static_cast<int32_t>(i));
}

TEST(AnthropicForm, AStreamIsTheWholeMessageHoweverItIsCut) {
  const char* reasons[] = {"tool_use",      "tool_use",   "end_turn", "end_turn", "tool_use",  "max_tokens",
                           "stop_sequence", "max_tokens", "tool_use", "end_turn", "max_tokens"};
  size_t at = 0;
  for (const Case& one : Cases()) {
    const std::vector<FinishedAnswer> answers = {AnswerOf(one)};
    const Json whole = Json::parse(MakeAnthropicForm(PartsOf())->Whole(answers));
    EXPECT_EQ(whole["stop_reason"], reasons[at]) << one.text;
    EXPECT_GE(whole["content"].size(), 1U);
    if (at == 0) {
      EXPECT_EQ(whole["content"][0], (Json{{"type", "text"}, {"text", "Let me see.\n"}}));
      EXPECT_EQ(whole["content"][1]["input"]["city"], "B\"o");
      EXPECT_EQ(whole["content"][2]["id"], "toolu_7_1");
    }
    if (at == 9) {
      EXPECT_EQ(whole["content"][0], (Json{{"type", "thinking"}, {"thinking", "a"}, {"signature", ""}}));
      EXPECT_EQ(whole["content"][1], (Json{{"type", "text"}, {"text", "So <think>b</think>"}}));
    }
    for (const size_t piece : {1, 2, 3, 7, 400}) {
      const auto form = MakeAnthropicForm(PartsOf());
      Json content = Json::array();
      std::string json;
      bool open = false;
      for (const Json& event : Stream(*form, answers, piece)) {
        const std::string type = event["type"];
        if (type == "content_block_start") {
          EXPECT_FALSE(open);
          EXPECT_EQ(event["index"], content.size());
          content.push_back(event["content_block"]);
          open = true;
        } else if (type == "content_block_delta") {
          EXPECT_TRUE(open);
          EXPECT_EQ(event["index"], content.size() - 1);
          const Json& delta = event["delta"];
          if (delta["type"] == "text_delta") {
            content.back()["text"].get_ref<std::string&>() += delta["text"].get<std::string>();
          } else if (delta["type"] == "thinking_delta") {
            content.back()["thinking"].get_ref<std::string&>() += delta["thinking"].get<std::string>();
          } else if (delta["type"] == "signature_delta") {
            content.back()["signature"] = delta["signature"];
          } else {
            json += delta["partial_json"].get<std::string>();
          }
        } else if (type == "content_block_stop") {
          if (Json::accept(json)) content.back()["input"] = Json::parse(json);
          json.clear();
          open = false;
        } else if (type == "message_delta") {
          EXPECT_FALSE(open);
          EXPECT_EQ(event["delta"]["stop_reason"], reasons[at]);
        }
      }
      EXPECT_EQ(content, whole["content"]) << "in pieces of " << piece;
    }
    ++at;
  }
}

TEST(AnthropicForm, NumbersOfACallStayWhatTheyAre) {
  const std::string input = R"({"id":123456789012345678901234567890,"at":0.1})";
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": " + input + "}\n</tool_call>";
  EXPECT_THAT(MakeAnthropicForm(PartsOf())->Whole(std::vector{AnswerOf({call})}),
              HasSubstr("\"input\":" + input));
}

TEST(ResponsesForm, AStreamIsTheWholeResponseHoweverItIsCut) {
  const Json repeated = {{"tools", {{{"type", "function"}, {"name", "now"}}}}, {"tool_choice", "required"}};
  for (const Case& one : Cases()) {
    const std::vector<FinishedAnswer> answers = {AnswerOf(one)};
    const Json whole = Json::parse(MakeResponsesForm(PartsRepeating(repeated))->Whole(answers));
    EXPECT_EQ(whole["tool_choice"], "required");
    EXPECT_EQ(whole["tools"], repeated["tools"]);
    const bool stopped = one.reason == FinishReason::kStop;
    EXPECT_EQ(whole["status"], stopped ? "completed" : "incomplete");
    EXPECT_EQ(whole["output"].back()["status"], stopped ? "completed" : "incomplete");
    for (const size_t piece : {1, 2, 3, 7, 400}) {
      const auto form = MakeResponsesForm(PartsRepeating(repeated));
      Json output = Json::array();
      std::string pieces;
      int64_t n = 0;
      Json last;
      for (const Json& event : Stream(*form, answers, piece)) {
        EXPECT_EQ(event["sequence_number"], n++);
        const std::string type = event["type"];
        if (type == "response.output_item.added") {
          EXPECT_EQ(event["output_index"], output.size());
          pieces.clear();
        } else if (type.ends_with(".delta")) {
          pieces += event["delta"].get<std::string>();
        } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
          EXPECT_EQ(event["text"], pieces);
        } else if (type == "response.function_call_arguments.done") {
          EXPECT_EQ(event["arguments"], pieces);
        } else if (type == "response.output_item.done") {
          output.push_back(event["item"]);
        }
        last = event;
      }
      EXPECT_EQ(output, whole["output"]) << "in pieces of " << piece;
      EXPECT_EQ(last["response"]["output"], whole["output"]);
    }
  }
  const Json two =
      Json::parse(MakeResponsesForm(PartsRepeating(repeated))->Whole(std::vector{AnswerOf(Cases()[0])}));
  ASSERT_EQ(two["output"].size(), 3U);
  EXPECT_EQ(two["output"][1]["call_id"], "call_7_0");
  EXPECT_EQ(two["output"][1]["arguments"], "{\"city\": \"B\\\"o\"}");
  const Json thought =
      Json::parse(MakeResponsesForm(PartsRepeating(repeated))->Whole(std::vector{AnswerOf(Cases()[9])}));
  ASSERT_EQ(thought["output"].size(), 2U);
  EXPECT_EQ(thought["output"][0]["type"], "reasoning");
  EXPECT_EQ(thought["output"][0]["summary"], Json::array());
  EXPECT_EQ(thought["output"][0]["content"], Json::array({{{"type", "reasoning_text"}, {"text", "a"}}}));
  EXPECT_EQ(thought["output"][1]["content"][0]["text"], "So <think>b</think>");
}

}  // namespace
}  // namespace longspec::api
