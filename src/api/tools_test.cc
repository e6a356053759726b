// SPDX-License-Identifier: Apache-2.0
//
// Tools that a request offers: they are read, told to the model, and calls come back in the API's form.
#include "api/tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "api/apply_dialect.h"
#include "api/fields.h"
#include "api/grammar_fields.h"
#include "api/openai.h"
#include "api/request.h"
#include "api/shared_fields.h"
#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "chat/tool_calls.h"
#include "chat/tool_form.h"
#include "grammar/grammar.h"
#include "grammar/testing/byte_vocabulary.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarText::Kind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::variant<Request, Error> ParseTools(
    const std::string& more, const std::string& messages = R"([{"role": "user", "content": "?"}])") {
  return ParseChatRequest(LoadJson(R"({"messages": )" + messages + (more.empty() ? "" : ", ") + more + "}"),
                          OpenAiDefaults());
}
Request Asked(const std::string& more,
              const std::string& messages = R"([{"role": "user", "content": "?"}])") {
  auto parsed = ParseTools(more, messages);
  if (const auto* error = std::get_if<Error>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<Request>(std::move(parsed));
}
std::string ToolsError(const std::string& more) {
  const auto parsed = ParseTools(more);
  const auto* error = std::get_if<Error>(&parsed);
  return error == nullptr ? "no error" : error->message;
}

constexpr const char* kTools = R"("tools": [
  {"type": "function", "function": {"name": "weather", "description": "d", "strict": true, "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "at": {"type": "integer"}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "now"}}])";

// --- The form of answers. ---

TEST(AnswerForm, OfOpenAi) {
  EXPECT_EQ(Asked("").generation.grammar, GrammarText());
  EXPECT_EQ(Asked(R"("response_format": {"type": "text"})").generation.grammar, GrammarText());
  EXPECT_EQ(Asked(R"("response_format": {"type": "json_object"})").generation.grammar,
            (GrammarText{Kind::kJsonObject, ""}));
  // Properties keep their order.
  EXPECT_EQ(Asked(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
                      "schema": {"properties": {"b": {}, "a": {}}}}})")
                .generation.grammar,
            (GrammarText{Kind::kJsonSchema, R"({"properties":{"b":{},"a":{}}})"}));
}

TEST(AnswerForm, OfLlamaCppAndVllm) {
  const GrammarText schema = {Kind::kJsonSchema, R"({"type":"null"})"};
  EXPECT_EQ(Asked(R"("json_schema": {"type": "null"})").generation.grammar, schema);
  EXPECT_EQ(
      Asked(R"("response_format": {"type": "json_object", "schema": {"type": "null"}})").generation.grammar,
      schema);
  EXPECT_EQ(
      Asked(R"("response_format": {"type": "json_schema", "schema": {"type": "null"}})").generation.grammar,
      schema);
  EXPECT_EQ(Asked(R"("grammar": "root ::= \"a\"")").generation.grammar,
            (GrammarText{Kind::kGbnf, "root ::= \"a\""}));
  EXPECT_EQ(Asked(R"("grammar": "")").generation.grammar, GrammarText());
  EXPECT_EQ(Asked(R"("response_format": {"type": "structural_tag", "format": {}})").generation.grammar.kind,
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
  EXPECT_THAT(ToolsError(R"("json_schema": {}, "grammar": "root ::= \"a\"")"), HasSubstr("only one form"));
}

// --- Tools of a request. ---

// What a request says of tools: which there are, and whether and which of them must be called. A tool that
// is named is the only one left.
TEST(Tools, AreRead) {
  const chat::ToolUse use = Asked(kTools).tools;
  ASSERT_EQ(use.tools.size(), 2U);
  EXPECT_TRUE(use.offered());
  EXPECT_EQ(use.choice, chat::ToolChoice::kAuto);
  EXPECT_TRUE(use.parallel);
  EXPECT_EQ(use.tools[0].name, "weather");
  EXPECT_TRUE(use.tools[0].strict);
  EXPECT_EQ(use.tools[1].parameters, Json::parse(R"({"type": "object", "additionalProperties": false})"));
  EXPECT_FALSE(Asked("").tools.offered());
  EXPECT_FALSE(Asked(std::string(kTools) + R"(, "tool_choice": "none")").tools.offered());
  EXPECT_EQ(Asked(std::string(kTools) + R"(, "tool_choice": "required")").tools.choice,
            chat::ToolChoice::kRequired);
  const chat::ToolUse named =
      Asked(std::string(kTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "now"}})")
          .tools;
  ASSERT_EQ(named.tools.size(), 1U);
  EXPECT_EQ(named.tools[0].name, "now");
  EXPECT_EQ(named.choice, chat::ToolChoice::kRequired);
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
  std::string text = testing::ReadText(testing::SourcePath("src/jinja/testdata/templates/" + name));
  EXPECT_FALSE(text.empty()) << name;
  return text;
}

TEST(Tools, TheTemplateTellsTheFormat) {
  EXPECT_EQ(chat::ToolFormatOf(Template("qwen25.jinja")), chat::ToolFormat::kHermes);
  EXPECT_EQ(chat::ToolFormatOf(Template("qwen3.jinja")), chat::ToolFormat::kHermes);
  EXPECT_EQ(chat::ToolFormatOf("{% if tools %}<tool_call>\n<function=name>\n<parameter=a>{% endif %}"),
            chat::ToolFormat::kTagged);
  EXPECT_EQ(chat::ToolFormatOf(Template("llama31_tools.jinja")), chat::ToolFormat::kLlama3);
  EXPECT_EQ(chat::ToolFormatOf(Template("smollm2.jinja")), chat::ToolFormat::kGeneric);
  EXPECT_EQ(chat::ToolFormatOf(Template("mistral_v3.jinja")), chat::ToolFormat::kMistralList);
  EXPECT_EQ(chat::ToolFormatOf("{% if tools %}[TOOL_CALLS]{{ name }}[ARGS]{% endif %}"),
            chat::ToolFormat::kMistral);
  EXPECT_EQ(chat::ToolFormatOf(""), chat::ToolFormat::kGeneric);
}

TEST(Tools, TemplatesThatKnowThemGetThem) {
  Request request = Asked(kTools);
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kHermes}, &request));
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

// What the conversation tells of is called as the others are, but the beginning does not change for it.
TEST(Tools, ThoseThatAreToldOfLaterAreNotToldOfBefore) {
  for (const chat::ToolFormat format : {chat::ToolFormat::kHermes, chat::ToolFormat::kGeneric}) {
    const auto told = [&](size_t n_announced) {
      Request request = Asked(kTools);
      for (size_t i = 0; i < n_announced; ++i) request.tools.tools[1 - i].is_announced = true;
      EXPECT_FALSE(ApplyTools({.tools = format}, &request));
      EXPECT_THAT(request.generation.grammar.text, HasSubstr("weather"));
      EXPECT_THAT(request.generation.grammar.text, HasSubstr("now"));
      return request.generation.template_variables + request.generation.messages.front().content;
    };
    EXPECT_THAT(told(0), HasSubstr("\"name\":\"now\""));
    EXPECT_THAT(told(1), ::testing::Not(HasSubstr("\"name\":\"now\"")));
    EXPECT_THAT(told(1), HasSubstr("\"name\":\"weather\""));
    EXPECT_EQ(told(2), told(0));  // nothing else would say how tools are called
  }
}

TEST(Tools, OnesWithTaggedArgumentsGetThatForm) {
  Request request = Asked(kTools);
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kTagged}, &request));
  const Json tag = Json::parse(request.generation.grammar.text);
  EXPECT_EQ(tag["format"]["triggers"][0], "<tool_call>");
  EXPECT_EQ(tag["format"]["tags"][0]["begin"], "<tool_call>\n<function=weather>\n");
  EXPECT_EQ(Json::parse(request.generation.template_variables)["tools"].size(), 2U);
  // Texts between tags are held to no rules: one that must be is refused.
  Request strict = Asked(R"("tools": [{"type": "function", "function": {"name": "f", "strict": true,
    "parameters": {"properties": {"a": {"type": ["string", "integer"], "minimum": 2}}}}}])");
  const auto error = ApplyTools({.tools = chat::ToolFormat::kTagged}, &strict);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("the function f is strict"));
  EXPECT_THAT(error->message, HasSubstr("minimum of a"));
}

// Calls that are written in another way than they were shown are held, too.
TEST(Tools, UntaggedCallsOfStrictFunctionsAreHeldWhereTheModelMayChoose) {
  if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  using testing::ByteVocabulary;
  const auto compiler = *GrammarCompiler::Create(ByteVocabulary::Make());
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f", "strict": true,
      "parameters": {"properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}}},
      {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}])";
  for (const chat::ToolFormat format :
       {chat::ToolFormat::kHermes, chat::ToolFormat::kTagged, chat::ToolFormat::kLlama3,
        chat::ToolFormat::kMistralList, chat::ToolFormat::kMistral, chat::ToolFormat::kGeneric}) {
    Request request = Asked(tools);
    ASSERT_FALSE(ApplyTools({.tools = format}, &request));
    SCOPED_TRACE(static_cast<int>(format));
    const auto form = chat::CallFormOf(format, request.tools);
    const auto grammar = compiler->Compile(request.generation.grammar);
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    const auto allows = [&](const std::string& text) { return ByteVocabulary::IsTaken(text, **grammar); };
    const std::string key = format == chat::ToolFormat::kLlama3 ? "parameters" : "arguments";
    const std::string begin = R"({"name": "f", ")" + key + "\": ",
                      pretty = "{\n  \"name\": \"f\",\n  \"arguments\": ";
    // What begins with a list is one.
    const bool is_list = format == chat::ToolFormat::kGeneric || format == chat::ToolFormat::kMistralList;
    const std::string close = is_list ? "" : "\n```";
    EXPECT_TRUE(allows("Any text. {\"name\":\"x\"}"));
    EXPECT_TRUE(allows(begin + R"({"a": 7}})"));
    EXPECT_TRUE(allows("```json\n" + pretty + "{\n    \"a\": 7\n  }}" + close));
    EXPECT_TRUE(allows("```json\n" + pretty + "{\n    \"a\": 7\n  }\n}" + close));
    EXPECT_FALSE(allows(begin + R"({"a": 10}})"));
    EXPECT_FALSE(allows(begin + R"({"b": 7}})"));
    EXPECT_FALSE(allows(pretty + R"({"a": "7"}})"));
    EXPECT_TRUE(allows(R"({"name":"g","arguments":{"b": 7}})"));
    // What the grammar does not hold is no call.
    for (const std::string& text :
         std::vector<std::string>{begin + R"({"a": 10}})", R"({"name" : "f", "arguments": {"a": 10}})",
                                  R"({"id": "1", "name": "f", "arguments": {"a": 10}})"}) {
      chat::ToolCallReader reader(form);
      (void)reader.ReadWhole(text);
      EXPECT_FALSE(allows(text) && reader.n_calls() > 0) << text;
    }
    if (format == chat::ToolFormat::kTagged) {
      EXPECT_TRUE(allows("<function=f>\n<parameter=a>\n7\n</parameter>\n</function>"));
      EXPECT_FALSE(allows("<function=f>\n<parameter=a>\n10\n</parameter>\n</function>"));
    }
    // One that must call begins as it was shown.
    Request required = Asked(tools + R"(, "tool_choice": "required")");
    ASSERT_FALSE(ApplyTools({.tools = format}, &required));
    EXPECT_FALSE(chat::CallFormOf(format, required.tools)->holds_untagged);
    EXPECT_EQ(Json::parse(required.generation.grammar.text)["format"]["triggers"].size(), 1U);
  }
}

TEST(Tools, OtherModelsAreToldInTheSystemMessage) {
  Request request =
      Asked(kTools, R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}])");
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kGeneric}, &request));
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
  Request known = Asked(kTools, kTurns);
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kHermes}, &known));
  const std::vector<Message>& turns = known.generation.messages;
  EXPECT_EQ(Json::parse(turns[1].more)["tool_calls"][0]["function"]["arguments"]["city"], "Bonn");
  EXPECT_EQ(turns[2].role, "tool");
  EXPECT_EQ(turns[2].more, R"({"tool_call_id":"call_1"})");
  // Also where no tools are offered any more.
  Request told = Asked("", kTurns);
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kGeneric}, &told));
  ASSERT_EQ(told.generation.messages.size(), 3U);
  EXPECT_EQ(told.generation.messages[1].content,
            R"(<tool_call>[{"name": "weather", "arguments": {"city": "Bonn"}}]</tool_call>)");
  EXPECT_EQ(told.generation.messages[2].role, "user");
  EXPECT_EQ(told.generation.messages[2].content, "<tool_response>\nrain\n</tool_response>");
}

// Mistral's templates refuse other ids.
TEST(Tools, IdsOfEarlierCallsAreShortForMistralsModels) {
  const auto ids = [](const std::string& turns) {
    Request told = Asked(kTools, turns);
    EXPECT_FALSE(ApplyTools({.tools = chat::ToolFormat::kMistralList}, &told));
    std::vector<std::string> found;
    for (const Message& message : told.generation.messages) {
      if (message.more.empty()) continue;
      const Json more = Json::parse(message.more);
      if (more.contains("tool_call_id")) found.push_back(more["tool_call_id"]);
      for (const Json& call : more.value("tool_calls", Json::array())) {
        EXPECT_TRUE(call["function"]["arguments"].is_object());
        found.push_back(call["id"]);
      }
    }
    for (const std::string& id : found) EXPECT_THAT(id, ::testing::MatchesRegex("[a-zA-Z0-9]{9}"));
    return found;
  };
  const auto turns = [](const std::string& a, const std::string& b, const std::string& of_a,
                        const std::string& of_b) {
    const auto call = [](const std::string& id) {
      return "{" + id +
             R"("type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Bonn\"}"}})";
    };
    return R"([{"role": "user", "content": "?"}, {"role": "assistant", "content": null, "tool_calls": [)" +
           call(a) + ", " + call(b) + R"(]}, {"role": "tool", )" + of_b +
           R"("content": "b"}, {"role": "tool", )" + of_a + R"("content": "a"}])";
  };
  const auto known = ids(turns(R"("id": "call_7_0", )", R"("id": "a1B2c3D4e", )",
                               R"("tool_call_id": "call_7_0", )", R"("tool_call_id": "a1B2c3D4e", )"));
  ASSERT_EQ(known.size(), 4U);
  EXPECT_EQ(known[1], "a1B2c3D4e");
  EXPECT_EQ(known[2], known[1]);
  EXPECT_EQ(known[3], known[0]);
  // As Ollama's clients leave them out.
  const auto missing = ids(turns("", "", "", ""));
  ASSERT_EQ(missing.size(), 4U);
  EXPECT_NE(missing[0], missing[1]);
  EXPECT_EQ(missing[2], missing[0]);
  EXPECT_EQ(missing[3], missing[1]);
}

TEST(Tools, NumbersOfEarlierCallsStayWhatTheyWere) {
  const std::string turns =
      R"([{"role": "user", "content": "?"}, {"role": "assistant", "content": null, "tool_calls":
      [{"id": "1", "type": "function", "function": {"name": "weather", "arguments":
        "{\"id\": 123456789012345678901234567890, \"at\": 0.10}"}},
       {"id": "2", "type": "function", "function": {"name": "now", "arguments": {"at": 18446744073709551615}}}]}])";
  const std::string first = R"({"id": 123456789012345678901234567890, "at": 0.10})";
  for (const chat::ToolFormat format : {chat::ToolFormat::kHermes, chat::ToolFormat::kTagged,
                                        chat::ToolFormat::kLlama3, chat::ToolFormat::kMistral}) {
    Request known = Asked(kTools, turns);
    ASSERT_FALSE(ApplyTools({.tools = format}, &known));
    EXPECT_THAT(known.generation.messages[1].more, HasSubstr("\"arguments\":" + first));
    EXPECT_THAT(known.generation.messages[1].more, HasSubstr(R"("arguments":{"at":18446744073709551615})"));
  }
  Request told = Asked("", turns);
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kGeneric}, &told));
  EXPECT_THAT(told.generation.messages[1].content, HasSubstr("\"arguments\": " + first + "}, "));
}

TEST(Tools, NumbersOfTheirSchemasStayWhatTheyWere) {
  const std::string schema =
      R"({"type":"object","properties":{"id":{"const":18446744073709551616,"default":0.1}}})";
  const std::string tools =
      R"("chat_template_kwargs": {"x": 36893488147419103232}, "tools": [{"type": "function", "function":
      {"name": "f", "parameters": )" +
      schema + "}}]";
  for (const chat::ToolFormat format : {chat::ToolFormat::kHermes, chat::ToolFormat::kTagged,
                                        chat::ToolFormat::kLlama3, chat::ToolFormat::kMistral}) {
    Request request = Asked(tools);
    ASSERT_FALSE(ApplyTools({.tools = format}, &request));
    EXPECT_THAT(request.generation.template_variables, HasSubstr(schema));
    EXPECT_THAT(request.generation.template_variables, HasSubstr(R"("x":36893488147419103232)"));
    EXPECT_THAT(
        request.generation.grammar.text,
        HasSubstr(format == chat::ToolFormat::kTagged ? R"("value":"18446744073709551616")" : schema));
  }
  Request request = Asked(tools);
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kGeneric}, &request));
  EXPECT_THAT(request.generation.messages[0].content, HasSubstr(schema));
}

TEST(Tools, AGrammarBesideThemIsRefused) {
  Request request = Asked(std::string(kTools) + R"(, "grammar": "root ::= [a-z]")");
  EXPECT_EQ(request.grammar_field, "grammar");
  const auto error = ApplyTools({.tools = chat::ToolFormat::kHermes}, &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "tools");
  EXPECT_THAT(error->message, HasSubstr("beside grammar: a JSON schema or response_format can be"));
  // One that the request does not ask for gives way.
  Request other = Asked(kTools);
  other.generation.grammar = {Kind::kJsonObject, ""};
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kHermes}, &other));
  EXPECT_EQ(other.generation.grammar.kind, Kind::kStructuralTag);
  EXPECT_EQ(other.grammar_field, "tools");
}

// A call, or what is said in the form that was asked for.
TEST(Tools, AResponseFormatHoldsWhatIsSaid) {
  if (!HasGrammars()) GTEST_SKIP() << "built without xgrammar";
  using testing::ByteVocabulary;
  const auto compiler = *GrammarCompiler::Create(ByteVocabulary::Make());
  const std::string fields = R"("tools": [{"type": "function", "function": {"name": "f", "strict": true,
      "parameters": {"properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}}}],
      "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"properties":
      {"name": {"type": "string"}, "arguments": {"type": "object"}}, "required": ["name"]}}})";
  const std::vector<std::pair<chat::ToolFormat, std::string>> calls = {
      {chat::ToolFormat::kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 7}}\n</tool_call>"},
      {chat::ToolFormat::kTagged,
       "<tool_call>\n<function=f>\n<parameter=a>\n7\n</parameter>\n</function>\n</tool_call>"},
      {chat::ToolFormat::kLlama3, R"({"name": "f", "parameters": {"a": 7}})"},
      {chat::ToolFormat::kMistralList,
       R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 7}, "id": "a1B2c3D4e"}])"},
      {chat::ToolFormat::kMistral, R"([TOOL_CALLS]f[ARGS]{"a": 7})"},
      {chat::ToolFormat::kGeneric, R"(<tool_call>[{"name": "f", "arguments": {"a": 7}}]</tool_call>)"}};
  for (const auto& [format, call] : calls) {
    SCOPED_TRACE(static_cast<int>(format));
    const std::string said = R"({"name": "f", "arguments": {"a": 10}})";
    for (const bool required : {false, true}) {
      Request request = Asked(fields + (required ? R"(, "tool_choice": "required")" : ""));
      ASSERT_FALSE(ApplyTools({.tools = format}, &request));
      const auto grammar = compiler->Compile(request.generation.grammar);
      ASSERT_TRUE(grammar.ok()) << grammar.status().message();
      const auto allows = [&](const std::string& text) { return ByteVocabulary::IsTaken(text, **grammar); };
      EXPECT_TRUE(allows(call));
      EXPECT_EQ(allows(said), !required);
      EXPECT_FALSE(allows("Any text."));
      EXPECT_FALSE(allows(R"({"b": 1})"));
      const auto form = chat::CallFormOf(format, request.tools);
      chat::ToolCallReader of_call(form), of_text(form);
      (void)of_call.ReadWhole(call);
      EXPECT_EQ(of_call.n_calls(), 1);
      if (required) continue;
      const chat::AnswerParts parts = of_text.ReadWhole(said);
      ASSERT_EQ(parts.size(), 1U);
      EXPECT_EQ(std::get<std::string>(parts[0]), said);
    }
  }
}

TEST(Json, AnObjectMayHaveSoManyKeys) {
  std::string many = "{\"a\": 0";
  for (int i = 0; i < 10'000; ++i) many += ", \"" + std::to_string(i) + "\": 0";
  const auto parsed = ParseJson(many + "}");
  ASSERT_TRUE(std::holds_alternative<Error>(parsed));
  EXPECT_THAT(std::get<Error>(parsed).message, HasSubstr("more than 10000 keys"));
}

}  // namespace
}  // namespace longspec::api
