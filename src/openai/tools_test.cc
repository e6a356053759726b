// SPDX-License-Identifier: Apache-2.0
#include "openai/tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/testing/source_path.h"
#include "openai/answer_form.h"
#include "openai/json.h"
#include "openai/requests.h"
#include "openai/tool_calls.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarText::Kind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::variant<ApiRequest, ApiError> ParseTools(
    const std::string& more, const std::string& messages = R"([{"role": "user", "content": "?"}])") {
  return ParseRequest(Endpoint::kChatCompletions,
                      Json::parse(R"({"messages": )" + messages + (more.empty() ? "" : ", ") + more + "}"),
                      DefaultRequest());
}
ApiRequest Request(const std::string& more,
                   const std::string& messages = R"([{"role": "user", "content": "?"}])") {
  auto parsed = ParseTools(more, messages);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ApiRequest>(std::move(parsed));
}
std::string ToolsError(const std::string& more) {
  const auto parsed = ParseTools(more);
  const auto* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? "no error" : error->message;
}

constexpr const char* kTools = R"("tools": [
  {"type": "function", "function": {"name": "weather", "description": "d", "strict": true, "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "at": {"type": "integer"}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "now"}}])";

// --- The form of answers. ---

TEST(AnswerForm, OfOpenAi) {
  EXPECT_EQ(Request("").generation.grammar, GrammarText());
  EXPECT_EQ(Request(R"("response_format": {"type": "text"})").generation.grammar, GrammarText());
  EXPECT_EQ(Request(R"("response_format": {"type": "json_object"})").generation.grammar,
            (GrammarText{Kind::kJsonObject, ""}));
  // Properties keep their order.
  EXPECT_EQ(Request(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
                      "schema": {"properties": {"b": {}, "a": {}}}}})")
                .generation.grammar,
            (GrammarText{Kind::kJsonSchema, R"({"properties":{"b":{},"a":{}}})"}));
}

TEST(AnswerForm, OfLlamaCppAndVllm) {
  const GrammarText schema = {Kind::kJsonSchema, R"({"type":"null"})"};
  EXPECT_EQ(Request(R"("json_schema": {"type": "null"})").generation.grammar, schema);
  EXPECT_EQ(
      Request(R"("response_format": {"type": "json_object", "schema": {"type": "null"}})").generation.grammar,
      schema);
  EXPECT_EQ(
      Request(R"("response_format": {"type": "json_schema", "schema": {"type": "null"}})").generation.grammar,
      schema);
  EXPECT_EQ(Request(R"("grammar": "root ::= \"a\"")").generation.grammar,
            (GrammarText{Kind::kGbnf, "root ::= \"a\""}));
  EXPECT_EQ(Request(R"("grammar": "")").generation.grammar, GrammarText());
  EXPECT_EQ(Request(R"("response_format": {"type": "structural_tag", "format": {}})").generation.grammar.kind,
            Kind::kStructuralTag);
}

TEST(AnswerForm, MistakesAreNamed) {
  EXPECT_THAT(ToolsError(R"("response_format": {"type": "xml"})"),
              HasSubstr("response_format.type must be text, json_object"));
  EXPECT_THAT(ToolsError(R"("response_format": {"type": "json_schema"})"),
              HasSubstr("response_format.json_schema is missing"));
  EXPECT_THAT(ToolsError(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n"}})"),
              HasSubstr("response_format.json_schema.schema is missing"));
  EXPECT_THAT(ToolsError(R"("response_format": "json_object")"),
              HasSubstr("response_format must be an object"));
  EXPECT_THAT(ToolsError(R"("json_schema": 3)"), HasSubstr("json_schema must be a JSON schema"));
  EXPECT_THAT(ToolsError(R"("json_schema": {}, "grammar": "root ::= \"a\"")"), HasSubstr("only one of them"));
}

// --- Tools of a request. ---

TEST(Tools, AreRead) {
  const ToolUse use = Request(kTools).tools;
  ASSERT_EQ(use.tools.size(), 2U);
  EXPECT_TRUE(use.offered());
  EXPECT_EQ(use.choice, ToolChoice::kAuto);
  EXPECT_TRUE(use.parallel);
  EXPECT_EQ(use.tools[0].name, "weather");
  EXPECT_TRUE(use.tools[0].strict);
  EXPECT_EQ(use.tools[1].parameters, Json::parse(R"({"type": "object", "additionalProperties": false})"));
  EXPECT_FALSE(Request("").tools.offered());
  EXPECT_FALSE(Request(std::string(kTools) + R"(, "tool_choice": "none")").tools.offered());
  EXPECT_EQ(Request(std::string(kTools) + R"(, "tool_choice": "required")").tools.choice,
            ToolChoice::kRequired);
  const ToolUse named =
      Request(std::string(kTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "now"}})")
          .tools;
  ASSERT_EQ(named.tools.size(), 1U);
  EXPECT_EQ(named.tools[0].name, "now");
  EXPECT_EQ(named.choice, ToolChoice::kRequired);
}

TEST(Tools, MistakesAreNamed) {
  EXPECT_THAT(ToolsError(R"("tools": 3)"), HasSubstr("tools must be a list"));
  EXPECT_THAT(ToolsError(R"("tools": [{"type": "web_search"}])"),
              HasSubstr("tools[0].type must be \"function\""));
  EXPECT_THAT(ToolsError(R"("tools": [{"type": "function", "function": {}}])"),
              HasSubstr("tools[0].function.name is missing"));
  EXPECT_THAT(ToolsError(R"("tools": [{"type": "function", "function": {"name": "a b"}}])"),
              HasSubstr("letters, digits"));
  EXPECT_THAT(ToolsError(std::string(kTools) + R"(, "tool_choice": {"function": {"name": "f"}})"),
              HasSubstr("tool_choice names a function that tools does not have"));
  EXPECT_THAT(ToolsError(R"("tool_choice": "required")"), HasSubstr("tool_choice needs tools"));
  EXPECT_THAT(ToolsError(std::string(kTools) + R"(, "tool_choice": "maybe")"),
              HasSubstr("tool_choice must be"));
}

std::string Template(const std::string& name) {
  std::ifstream file(testing::SourcePath("src/jinja/testdata/templates/" + name));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

TEST(Tools, TheTemplateTellsTheFormat) {
  EXPECT_EQ(ToolFormatOf(Template("qwen25.jinja")), ToolFormat::kHermes);
  EXPECT_EQ(ToolFormatOf(Template("qwen3.jinja")), ToolFormat::kHermes);
  EXPECT_EQ(ToolFormatOf(Template("llama31_tools.jinja")), ToolFormat::kLlama3);
  EXPECT_EQ(ToolFormatOf(Template("smollm2.jinja")), ToolFormat::kGeneric);
  EXPECT_EQ(ToolFormatOf(Template("mistral_v3.jinja")), ToolFormat::kGeneric);
  EXPECT_EQ(ToolFormatOf(""), ToolFormat::kGeneric);
}

TEST(Tools, TemplatesThatKnowThemGetThem) {
  ApiRequest request = Request(kTools);
  ASSERT_FALSE(ApplyTools(ToolFormat::kHermes, &request));
  const Json variables = Json::parse(request.generation.template_variables);
  EXPECT_EQ(variables["tools"].size(), 2U);
  EXPECT_EQ(variables["tools"][0]["function"]["name"], "weather");
  EXPECT_FALSE(variables.contains("messages"));
  EXPECT_EQ(request.generation.messages.size(), 1U);
  const Json tag = Json::parse(request.generation.grammar.text);
  EXPECT_EQ(request.generation.grammar.kind, Kind::kStructuralTag);
  EXPECT_EQ(tag["format"]["triggers"][0], "<tool_call>");
  EXPECT_EQ(tag["format"]["tags"][0]["begin"], "<tool_call>\n{\"name\": \"weather\", \"arguments\": ");
  EXPECT_FALSE(tag["format"]["at_least_one"].get<bool>());
}

TEST(Tools, OtherModelsAreToldInTheSystemMessage) {
  ApiRequest request =
      Request(kTools, R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}])");
  ASSERT_FALSE(ApplyTools(ToolFormat::kGeneric, &request));
  ASSERT_EQ(request.generation.messages.size(), 2U);
  EXPECT_THAT(request.generation.messages[0].content, HasSubstr("<tools>[{\"type\":\"function\""));
  EXPECT_TRUE(request.generation.messages[0].content.ends_with("]</tool_call>\n\nBe brief."));
  EXPECT_THAT(request.generation.template_variables, IsEmpty());
}

constexpr const char* kTurns = R"([{"role": "user", "content": "?"},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
    "function": {"name": "weather", "arguments": "{\"city\": \"Bonn\"}"}}]},
  {"role": "tool", "tool_call_id": "call_1", "content": "rain"}])";

TEST(Tools, EarlierCallsAreTold) {
  ApiRequest known = Request(kTools, kTurns);
  ASSERT_FALSE(ApplyTools(ToolFormat::kHermes, &known));
  const std::vector<Message>& turns = known.generation.messages;
  EXPECT_EQ(Json::parse(turns[1].more)["tool_calls"][0]["function"]["arguments"]["city"], "Bonn");
  EXPECT_EQ(turns[2].role, "tool");
  EXPECT_EQ(turns[2].more, R"({"tool_call_id":"call_1"})");
  // Also where no tools are offered any more.
  ApiRequest told = Request("", kTurns);
  ASSERT_FALSE(ApplyTools(ToolFormat::kGeneric, &told));
  ASSERT_EQ(told.generation.messages.size(), 3U);
  EXPECT_EQ(told.generation.messages[1].content,
            R"(<tool_call>[{"name":"weather","arguments":{"city":"Bonn"}}]</tool_call>)");
  EXPECT_EQ(told.generation.messages[2].role, "user");
  EXPECT_EQ(told.generation.messages[2].content, "<tool_response>\nrain\n</tool_response>");
}

TEST(Tools, AGrammarBesideThemIsRefused) {
  ApiRequest request = Request(std::string(kTools) + R"(, "response_format": {"type": "json_object"})");
  EXPECT_EQ(request.grammar_field, "response_format");
  const auto error = ApplyTools(ToolFormat::kHermes, &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "tools");
  // One that the request does not ask for gives way.
  ApiRequest other = Request(kTools);
  other.generation.grammar = {Kind::kJsonObject, ""};
  ASSERT_FALSE(ApplyTools(ToolFormat::kHermes, &other));
  EXPECT_EQ(other.generation.grammar.kind, Kind::kStructuralTag);
  EXPECT_EQ(other.grammar_field, "tools");
}

// --- Calls in an answer. ---

struct Told {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Told&) const = default;
};

// However the text is cut, the same is read.
Told Read(ToolFormat format, const std::string& text) {
  const auto read = [&](size_t piece) {
    ToolCallReader reader(format);
    Told told;
    const auto take = [&](const AnswerParts& parts) {
      for (const auto& part : parts) {
        if (const auto* said = std::get_if<std::string>(&part)) {
          EXPECT_FALSE(said->empty());
          told.content += *said;
          continue;
        }
        const auto& call = std::get<ToolCallPiece>(part);
        if (!call.name.empty()) told.calls.emplace_back(call.name, "");
        EXPECT_EQ(call.index + 1, static_cast<int>(told.calls.size()));
        told.calls.back().second += call.arguments;
      }
    };
    for (size_t at = 0; at < text.size(); at += piece) take(reader.Push(text.substr(at, piece)));
    take(reader.Finish());
    EXPECT_EQ(reader.n_calls(), static_cast<int>(told.calls.size()));
    return told;
  };
  const Told whole = read(text.size() + 1);
  for (const size_t piece : {1, 2, 3, 7}) EXPECT_EQ(read(piece), whole) << text << " in pieces of " << piece;
  return whole;
}

TEST(ToolCalls, OfHermes) {
  EXPECT_EQ(
      Read(ToolFormat::kHermes,
           "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
           "\"a}\\\"b\", \"at\": [1, {}]}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
           "\"arguments\": {}}\n</tool_call>"),
      (Told{"Let me see.\n", {{"weather", "{\"city\": \"a}\\\"b\", \"at\": [1, {}]}"}, {"now", "{}"}}}));
  EXPECT_EQ(Read(ToolFormat::kHermes, "No <tool_ call> here"), (Told{"No <tool_ call> here", {}}));
  EXPECT_EQ(Read(ToolFormat::kHermes, "<tool_call>I think so"), (Told{"<tool_call>I think so", {}}));
  EXPECT_EQ(Read(ToolFormat::kHermes, "a <tool_ca"), (Told{"a <tool_ca", {}}));
}

TEST(ToolCalls, OfLlama3) {
  EXPECT_EQ(Read(ToolFormat::kLlama3, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Bonn\"}}"),
            (Told{"", {{"weather", "{\"city\": \"Bonn\"}"}}}));
  EXPECT_EQ(Read(ToolFormat::kLlama3,
                 "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}"),
            (Told{"", {{"now", "{}"}, {"now", "{}"}}}));
  EXPECT_EQ(Read(ToolFormat::kLlama3, "{\"a\": 1}"), (Told{"{\"a\": 1}", {}}));
}

TEST(ToolCalls, OfOthers) {
  EXPECT_EQ(Read(ToolFormat::kGeneric,
                 "<tool_call>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"weather\", "
                 "\"arguments\": {\"city\": \"x\"}}]</tool_call>"),
            (Told{"", {{"now", "{}"}, {"weather", "{\"city\": \"x\"}"}}}));
  EXPECT_EQ(Read(ToolFormat::kGeneric, "<tool_call>[]</tool_call>"), (Told{"", {}}));
}

TEST(ToolCalls, OneThatWasCutShortKeepsWhatItHas) {
  EXPECT_EQ(Read(ToolFormat::kHermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bo"),
            (Told{"", {{"weather", "{\"city\": \"Bo"}}}));
}

TEST(ToolCalls, PartsAreInTheOrderOfTheText) {
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const AnswerParts parts =
      ToolCallReader(ToolFormat::kHermes).ReadWhole("One. " + call + call + "Two. " + call);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_EQ(std::get<std::string>(parts[0]), "One. ");
  EXPECT_EQ(std::get<ToolCallPiece>(parts[2]).arguments, "{\"a\": 1}");
  EXPECT_EQ(std::get<std::string>(parts[3]), "Two. ");
  EXPECT_EQ(std::get<ToolCallPiece>(parts[4]).index, 2);
  ASSERT_EQ(ToolCallReader(std::nullopt).ReadWhole(call).size(), 1U);  // nobody offered tools
  EXPECT_EQ(std::get<std::string>(ToolCallReader(std::nullopt).ReadWhole(call)[0]), call);
  EXPECT_THAT(ToolCallReader(ToolFormat::kHermes).ReadWhole(""), IsEmpty());
}

TEST(ToolCalls, AreMovedToTheirPlaceInAResponse) {
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
  MoveToolCalls(ToolFormat::kHermes, "7", &response);
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

TEST(ToolCalls, DeltasAsAStreamHasThem) {
  EXPECT_EQ(ToolCallDeltaJson({.index = 1, .name = "f", .arguments = ""}, "9", 0).dump(),
            R"({"index":1,"id":"call_9_1","type":"function","function":{"name":"f","arguments":""}})");
  EXPECT_EQ(ToolCallDeltaJson({.index = 1, .name = "", .arguments = "{}"}, "9", 0).dump(),
            R"({"index":1,"function":{"arguments":"{}"}})");
  // Calls of another choice have other names.
  EXPECT_EQ(ToolCallDeltaJson({.index = 1, .name = "f", .arguments = ""}, "9", 2)["id"], "call_9_2_1");
}

TEST(ToolCalls, AreWholeUnlessTheLastWasCutShort) {
  const auto whole = [](const std::string& text) {
    ToolCallReader reader(ToolFormat::kHermes);
    reader.ReadWhole(text);
    return reader.has_whole_calls();
  };
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}";
  EXPECT_TRUE(whole(call + "}\n</tool_call>"));
  EXPECT_TRUE(whole(call));
  EXPECT_TRUE(whole(call + "}\n</tool_call> and <tool_ca"));
  EXPECT_FALSE(whole(call.substr(0, call.size() - 1)));
  EXPECT_FALSE(whole("nothing"));
}

TEST(Json, AnObjectMayHaveSoManyKeys) {
  std::string many = "{\"a\": 0";
  for (int i = 0; i < 10'000; ++i) many += ", \"" + std::to_string(i) + "\": 0";
  const auto parsed = ParseJson(many + "}");
  ASSERT_TRUE(std::holds_alternative<ApiError>(parsed));
  EXPECT_THAT(std::get<ApiError>(parsed).message, HasSubstr("more than 10000 keys"));
}

}  // namespace
}  // namespace longspec::openai
