// SPDX-License-Identifier: Apache-2.0
//
// What a model writes thoughts, channels and calls with follows from its template and from the request.
#include "api/apply_dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/fields.h"
#include "api/openai.h"
#include "api/request.h"
#include "api/shared_fields.h"
#include "grammar/testing/byte_vocabulary.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr chat::ThinkingTags kThink = chat::kThinkTags;

// --- Which answers are read so. ---

Request ThinkingRequest(const std::string& fields, std::vector<Message> messages = {{"user", "?"}}) {
  const auto body = ParseJson(R"({"messages": [{"role": "user", "content": "?"}])" + fields + "}");
  auto parsed = ParseChatRequest(std::get<Json>(body), OpenAiDefaults());
  if (const auto* error = std::get_if<Error>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  auto request = std::get<Request>(std::move(parsed));
  if (messages.back().role == "assistant") request.generation.prompt_end = PromptEnd::kContinued;
  request.generation.messages = std::move(messages);
  return request;
}

// "-": none is read; "begun", "may come".
std::string FormText(std::optional<chat::ThinkingTags> model, std::string_view prompt_end, Request request) {
  const auto form = ThinkingFormOf(model, prompt_end, &request);
  return !form ? "-" : form->begun ? "begun" : "may come";
}

TEST(ThinkingForm, GoesByTheModelAndTheRequest) {
  EXPECT_TRUE(chat::ThinkingTagsOf("{{ content.split('</think>')[-1] }}").has_value());
  EXPECT_FALSE(chat::ThinkingTagsOf("{{ content }}").has_value());
  const auto wished = [](std::optional<chat::ThinkingTags> model, const std::string& fields) {
    return FormText(model, "<assistant>\n", ThinkingRequest(fields));
  };
  EXPECT_EQ(wished(kThink, ""), "may come");
  EXPECT_EQ(wished(kThink, R"(, "reasoning_format": "auto")"), "may come");
  EXPECT_EQ(wished(kThink, R"(, "reasoning_format": "none")"), "-");
  EXPECT_EQ(wished(kThink, R"(, "separate_reasoning": false)"), "-");
  EXPECT_EQ(wished(std::nullopt, ""), "-");
  EXPECT_EQ(wished(std::nullopt, R"(, "include_reasoning": false)"), "-");
  EXPECT_EQ(wished(std::nullopt, R"(, "reasoning_format": "deepseek")"), "may come");
  Request request = ThinkingRequest(R"(, "include_reasoning": false)");
  EXPECT_FALSE(ThinkingFormOf(kThink, "", &request)->shown);
}

// What the server was told of all chats holds where a request does not say it.
TEST(ThinkingForm, ThePlaceOfThoughtsHasADefault) {
  const auto place = [](ThoughtsPlace otherwise, const std::string& fields) {
    const auto body = ParseJson(R"({"messages": [{"role": "user", "content": "?"}])" + fields + "}");
    RequestDefaults defaults = OpenAiDefaults();
    defaults.thoughts = otherwise;
    const auto parsed = ParseChatRequest(std::get<Json>(body), defaults);
    return std::get<Request>(parsed).wishes.thoughts;
  };
  for (const ThoughtsPlace otherwise :
       {ThoughtsPlace::kAuto, ThoughtsPlace::kApart, ThoughtsPlace::kInContent}) {
    EXPECT_EQ(place(otherwise, ""), otherwise);
    EXPECT_EQ(place(otherwise, R"(, "reasoning_format": null)"), otherwise);
    EXPECT_EQ(place(otherwise, R"(, "reasoning_format": "auto")"), ThoughtsPlace::kAuto);
    EXPECT_EQ(place(otherwise, R"(, "reasoning_format": "none")"), ThoughtsPlace::kInContent);
    EXPECT_EQ(place(otherwise, R"(, "reasoning_format": "deepseek")"), ThoughtsPlace::kApart);
    EXPECT_EQ(place(otherwise, R"(, "separate_reasoning": false)"), ThoughtsPlace::kInContent);
    EXPECT_EQ(place(otherwise, R"(, "include_reasoning": false)"), ThoughtsPlace::kNowhere);
  }
  EXPECT_EQ(place(ThoughtsPlace::kInContent, R"(, "separate_reasoning": true)"), ThoughtsPlace::kAuto);
  EXPECT_EQ(place(ThoughtsPlace::kApart, R"(, "separate_reasoning": true)"), ThoughtsPlace::kApart);
}

TEST(ThinkingForm, GoesByThePromptsEnd) {
  const auto after = [](std::string_view prompt_end, std::vector<Message> messages = {{"user", "<think>"}}) {
    return FormText(kThink, prompt_end, ThinkingRequest("", std::move(messages)));
  };
  EXPECT_EQ(after("<think>?</user><assistant>"), "may come");
  EXPECT_EQ(after("<assistant><think>\n"), "begun");
  EXPECT_EQ(after("<assistant><think>\n\n</think>\n\n"), "-");
  EXPECT_EQ(after("hm", {{"user", "?"}, {"assistant", "<think>hm"}}), "begun");
  EXPECT_EQ(after("so", {{"user", "?"}, {"assistant", "<think>hm</think>so"}}), "-");
  EXPECT_EQ(after("so", {{"user", "?"}, {"assistant", "so"}}), "-");
  EXPECT_EQ(after("<think>", {{"user", "?"}, {"assistant", ""}}), "begun");
}

// --- Beside a form of the answer. ---

// Whether the grammar takes the text as a whole.
bool Takes(const GrammarText& grammar, const std::string& text) {
  static const auto compiler = *GrammarCompiler::Create(testing::ByteVocabulary::Make());
  const auto compiled = compiler->Compile(grammar);
  if (!compiled.ok()) {
    ADD_FAILURE() << compiled.status().message();
    return false;
  }
  const auto constraint = *(*compiled)->NewConstraint();
  for (const char c : text) {
    if (!constraint->Accept(static_cast<unsigned char>(c))) return false;
  }
  return constraint->complete();
}

TEST(ThinkingForm, TheFormOfAnAnswerIsThatOfWhatIsSaid) {
  if (!HasGrammars()) GTEST_SKIP();
  const std::string schema = R"(, "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}},
      "required": ["a"], "additionalProperties": false})";
  for (const std::string& field : {schema, std::string(R"(, "response_format": {"type": "json_object"})")}) {
    Request free = ThinkingRequest(field);
    ASSERT_TRUE(ThinkingFormOf(kThink, "<assistant>", &free).has_value());
    EXPECT_TRUE(Takes(free.generation.grammar, R"({"a": 1})"));
    EXPECT_TRUE(Takes(free.generation.grammar, "<think>\nhm {\n</think>\n\n{\"a\": 1}"));
    EXPECT_FALSE(Takes(free.generation.grammar, "<think>hm</think>so"));
    EXPECT_FALSE(Takes(free.generation.grammar, "<think>hm"));
    EXPECT_FALSE(Takes(free.generation.grammar, "hm</think>{}"));
    Request begun = ThinkingRequest(field);
    ASSERT_TRUE(ThinkingFormOf(kThink, "<assistant><think>\n", &begun)->begun);
    EXPECT_TRUE(Takes(begun.generation.grammar, "hm\n</think>\n\n{\"a\": 1}"));
    EXPECT_FALSE(Takes(begun.generation.grammar, R"({"a": 1})"));
  }
  // What says all of the text is kept to from its beginning.
  Request whole = ThinkingRequest(R"(, "grammar": "root ::= \"yes\"")");
  EXPECT_FALSE(ThinkingFormOf(kThink, "<assistant><think>", &whole)->begun);
  EXPECT_EQ(whole.generation.grammar.kind, GrammarText::Kind::kGbnf);
  Request none = ThinkingRequest(schema + R"(, "reasoning_format": "none")");
  ThinkingFormOf(kThink, "<assistant>", &none);
  EXPECT_EQ(none.generation.grammar.kind, GrammarText::Kind::kJsonSchema);
}

TEST(ThinkingForm, ACallThatIsRequiredComesAfterTheThought) {
  if (!HasGrammars()) GTEST_SKIP();
  const std::string tools =
      R"(, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required")";
  Request request = ThinkingRequest(tools);
  ASSERT_FALSE(ApplyTools({.tools = chat::ToolFormat::kHermes}, &request).has_value());
  ASSERT_TRUE(ThinkingFormOf(kThink, "<assistant><think>\n", &request)->begun);
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(Takes(request.generation.grammar, "hm</think>\n\n" + call));
  EXPECT_FALSE(Takes(request.generation.grammar, "hm</think>\n\nno"));
}

// --- Of a model whose answers are messages in channels. ---

constexpr chat::Dialect kChannels = {.tools = chat::ToolFormat::kHarmony};
constexpr const char* kAnalysis = "<|channel|>analysis<|message|>hm {<|end|><|start|>assistant";
constexpr const char* kFinal = "<|channel|>final<|message|>";

TEST(ChannelForm, GoesByTheRequest) {
  const auto form = [](const std::string& fields, std::vector<Message> messages = {{"user", "?"}}) {
    Request request = ThinkingRequest(fields, std::move(messages));
    const chat::ReadingForm reading = ReadingFormOf(kChannels, "<|start|>assistant", &request);
    EXPECT_FALSE(reading.thinking.has_value());
    return *reading.channels;
  };
  EXPECT_TRUE(form("").apart && form("").shown && !form("").within);
  EXPECT_FALSE(form(R"(, "reasoning_format": "none")").apart);
  EXPECT_FALSE(form(R"(, "include_reasoning": false)").shown);
  EXPECT_TRUE(form("", {{"user", "?"}, {"assistant", "so"}}).within);
  Request whole = ThinkingRequest(R"(, "grammar": "root ::= \"yes\"")");
  EXPECT_FALSE(ReadingFormOf(kChannels, "", &whole).channels.has_value());
  EXPECT_EQ(whole.generation.grammar.kind, GrammarText::Kind::kGbnf);
}

TEST(ChannelForm, TheFormOfAnAnswerIsThatOfWhatIsSaid) {
  if (!HasGrammars()) GTEST_SKIP();
  Request request = ThinkingRequest(R"(, "response_format": {"type": "json_object"})");
  ReadingFormOf(kChannels, "<|start|>assistant", &request);
  const GrammarText& grammar = request.generation.grammar;
  EXPECT_TRUE(Takes(grammar, std::string(kFinal) + R"({"a": 1})"));
  EXPECT_TRUE(Takes(grammar, std::string(kAnalysis) + kFinal + R"({"a": 1})"));
  EXPECT_FALSE(Takes(grammar, R"({"a": 1})"));
  EXPECT_FALSE(Takes(grammar, std::string(kFinal) + "so"));
  EXPECT_FALSE(Takes(grammar, kAnalysis));
}

TEST(ChannelForm, HasNoThoughtsWhereTheyAreForbidden) {
  if (!HasGrammars()) GTEST_SKIP();
  Request request =
      ThinkingRequest(R"(, "response_format": {"type": "json_object"}, "enable_thinking": false)");
  ReadingFormOf(kChannels, "<|start|>assistant", &request);
  EXPECT_TRUE(Takes(request.generation.grammar, std::string(kFinal) + "{}"));
  EXPECT_FALSE(Takes(request.generation.grammar, std::string(kAnalysis) + kFinal + "{}"));
}

GrammarText FormWithTools(const std::string& fields, bool strict = false) {
  Request request = ThinkingRequest(
      R"(, "tools": [{"type": "function", "function": {"name": "f", "strict": )" +
      std::string(strict ? "true" : "false") +
      R"(, "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
      "additionalProperties": false}}}])" +
      fields);
  EXPECT_FALSE(ApplyTools(kChannels, &request).has_value());
  ReadingFormOf(kChannels, "<|start|>assistant", &request);
  return request.generation.grammar;
}

TEST(ChannelForm, CallsAreHeldToTheirSchema) {
  if (!HasGrammars()) GTEST_SKIP();
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>";
  const std::string said = std::string(kFinal) + "no";
  const GrammarText may = FormWithTools("");
  for (const std::string& before : {std::string(), std::string(kAnalysis)}) {
    EXPECT_TRUE(Takes(may, before + said));
    EXPECT_TRUE(Takes(may, before + call + R"({"a": 1})"));
    EXPECT_FALSE(Takes(may, before + call + R"({"a": "1"})"));
    EXPECT_FALSE(Takes(may, before + "<|channel|>commentary to=functions.g<|message|>{}"));
  }
  EXPECT_TRUE(Takes(may, "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}"));
  EXPECT_FALSE(Takes(may, "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}"));
  const GrammarText must = FormWithTools(R"(, "tool_choice": "required")");
  EXPECT_TRUE(Takes(must, kAnalysis + call + R"({"a": 1})"));
  EXPECT_TRUE(Takes(must, call + R"({"a": 1})"));
  EXPECT_FALSE(Takes(must, said));
  const GrammarText either = FormWithTools(R"(, "response_format": {"type": "json_object"})");
  EXPECT_TRUE(Takes(either, kAnalysis + call + R"({"a": 1})"));
  EXPECT_TRUE(Takes(either, std::string(kAnalysis) + kFinal + "{}"));
  EXPECT_FALSE(Takes(either, said));
}

}  // namespace
}  // namespace longspec::api
