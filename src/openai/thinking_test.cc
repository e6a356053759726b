// SPDX-License-Identifier: Apache-2.0
#include "openai/thinking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "grammar/testing/byte_vocabulary.h"
#include "openai/answer_reader.h"
#include "openai/json.h"
#include "openai/requests.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr ThinkingTags kThink = {"<think>", "</think>"};

struct Split {
  std::string thought, text;
  bool operator==(const Split&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Split& split) {
  return out << "{" << split.thought << "|" << split.text << "}";
}

Split SplitAt(const std::optional<ThinkingForm>& form, const std::vector<std::string_view>& pieces) {
  ThinkingReader reader(form);
  Split split;
  const auto take = [&](const ThinkingReader::Parts& parts) {
    EXPECT_TRUE(parts.thought.empty() || split.text.empty()) << "thoughts come first";
    split.thought += parts.thought;
    split.text += parts.text;
  };
  for (const std::string_view piece : pieces) take(reader.Push(piece));
  take(reader.Finish());
  return split;
}

// However the text is cut: every two cuts, and byte by byte.
Split SplitOf(const std::string& text, bool begun = false) {
  const ThinkingForm form = {.tags = kThink, .begun = begun};
  const std::string_view all = text;
  const Split whole = SplitAt(form, {all});
  for (size_t a = 0; a <= all.size(); ++a) {
    for (size_t b = a; b <= all.size(); ++b) {
      const Split cut = SplitAt(form, {all.substr(0, a), all.substr(a, b - a), all.substr(b)});
      EXPECT_EQ(cut, whole) << text << " cut at " << a << " and " << b;
    }
  }
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < all.size(); ++i) bytes.push_back(all.substr(i, 1));
  EXPECT_EQ(SplitAt(form, bytes), whole) << text;
  return whole;
}

TEST(Thinking, StandsBeforeWhatIsSaid) {
  EXPECT_EQ(SplitOf("<think>\nhm, 1 < 2\n</think>\n\nYes.\n"), (Split{"hm, 1 < 2", "Yes.\n"}));
  EXPECT_EQ(SplitOf("\n<think>hm\n\nso</think>Yes."), (Split{"hm\n\nso", "Yes."}));
  EXPECT_EQ(SplitOf("<think>\n\n</think>\n\nYes."), (Split{"", "Yes."}));
  EXPECT_EQ(SplitOf("<think>a </think> <think> b</think> c"), (Split{"a\nb", "c"}));
  EXPECT_EQ(SplitOf("<think>a</think>"), (Split{"a", ""}));
}

TEST(Thinking, NothingElseIsAThought) {
  for (const char* text :
       {"Yes.", "", " \n", " Yes.", "<thing>", "<thin", "</think> no", "Is <think>a</think> a tag?"})
    EXPECT_EQ(SplitOf(text), (Split{"", text}));
  EXPECT_EQ(SplitOf("<think>a</think>b <think>c</think>"), (Split{"a", "b <think>c</think>"}));
  EXPECT_EQ(SplitOf("<think>a</think>\n<thin"), (Split{"a", "<thin"}));
  EXPECT_EQ(SplitAt(std::nullopt, {"<think>a", "</think>b"}), (Split{"", "<think>a</think>b"}));
}

TEST(Thinking, MayBeCutShort) {
  EXPECT_EQ(SplitOf("<think>\na, and"), (Split{"a, and", ""}));
  EXPECT_EQ(SplitOf("<think>a</thin"), (Split{"a</thin", ""}));
  EXPECT_EQ(SplitOf("<think>"), (Split{"", ""}));
}

TEST(Thinking, MayHaveBegunInThePrompt) {
  EXPECT_EQ(SplitOf("\nhm\n</think>\n\nYes.", true), (Split{"hm", "Yes."}));
  EXPECT_EQ(SplitOf("<think>\nhm\n</think>\n\nYes.", true), (Split{"hm", "Yes."}));
  EXPECT_EQ(SplitOf("</think>Yes.", true), (Split{"", "Yes."}));
  EXPECT_EQ(SplitOf("<thin", true), (Split{"<thin", ""}));
  EXPECT_EQ(SplitOf("", true), (Split{"", ""}));
}

std::string Words(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

// Whether `words` is the text but for some of its tags.
bool IsWithoutTags(std::string_view words, std::string_view text) {
  while (!text.empty()) {
    const std::string_view tag = text.starts_with(kThink.begin) ? kThink.begin : kThink.end;
    if (text.starts_with(tag) && !words.starts_with(tag)) {
      text.remove_prefix(tag.size());
      continue;
    }
    if (words.empty() || words[0] != text[0]) return false;
    words.remove_prefix(1);
    text.remove_prefix(1);
  }
  return words.empty();
}

TEST(Thinking, LosesNothingButWhiteSpaceAndTags) {
  constexpr const char* kParts[] = {"<think>", "</think>", "<", "</", "think>", "a", "é", " ", "\n", "<th"};
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (uint32_t n = random() % 12; n > 0; --n) text += kParts[random() % std::size(kParts)];
    const ThinkingForm form = {.tags = kThink, .begun = random() % 2 == 0};
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min<size_t>(1 + random() % 6, text.size() - at);
      pieces.push_back(std::string_view(text).substr(at, n));
      at += n;
    }
    const Split split = SplitAt(form, pieces);
    EXPECT_EQ(split, SplitAt(form, {text})) << text;
    EXPECT_TRUE(IsWithoutTags(Words(split.thought + split.text), Words(text))) << text << split;
  }
}

TEST(AnswerReader, CallsComeAfterThoughts) {
  const CallForm calls{.format = ToolFormat::kHermes};
  ReadingForm form = {.thinking = ThinkingForm{.tags = kThink},
                      .calls = std::make_shared<const CallForm>(calls)};
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const std::string text = "<think>maybe " + call + "</think>\n\n" + call;
  const AnswerParts parts = AnswerReader(form).ReadWhole(text);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(std::get<Thought>(parts[0]).text, "maybe " + call);
  EXPECT_EQ(std::get<ToolCallPiece>(parts[1]).name, "f");
  form.thinking->shown = false;
  EXPECT_EQ(AnswerReader(form).ReadWhole(text).size(), 1U);
}

// --- Which answers are read so. ---

ApiRequest ThinkingRequest(const std::string& fields, std::vector<Message> messages = {{"user", "?"}}) {
  const auto body = ParseJson(R"({"messages": [{"role": "user", "content": "?"}])" + fields + "}");
  auto parsed = ParseRequest(Endpoint::kChatCompletions, std::get<Json>(body), OpenAiDefaults());
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  auto request = std::get<ApiRequest>(std::move(parsed));
  if (messages.back().role == "assistant") request.generation.prompt_end = PromptEnd::kContinued;
  request.generation.messages = std::move(messages);
  return request;
}

// "-": none is read; "begun", "may come".
std::string FormText(std::optional<ThinkingTags> model, std::string_view prompt_end, ApiRequest request) {
  const auto form = ThinkingFormOf(model, prompt_end, &request);
  return !form ? "-" : form->begun ? "begun" : "may come";
}

TEST(ThinkingForm, GoesByTheModelAndTheRequest) {
  EXPECT_TRUE(ThinkingTagsOf("{{ content.split('</think>')[-1] }}").has_value());
  EXPECT_FALSE(ThinkingTagsOf("{{ content }}").has_value());
  const auto wished = [](std::optional<ThinkingTags> model, const std::string& fields) {
    return FormText(model, "<assistant>\n", ThinkingRequest(fields));
  };
  EXPECT_EQ(wished(kThink, ""), "may come");
  EXPECT_EQ(wished(kThink, R"(, "reasoning_format": "auto")"), "may come");
  EXPECT_EQ(wished(kThink, R"(, "reasoning_format": "none")"), "-");
  EXPECT_EQ(wished(kThink, R"(, "separate_reasoning": false)"), "-");
  EXPECT_EQ(wished(std::nullopt, ""), "-");
  EXPECT_EQ(wished(std::nullopt, R"(, "include_reasoning": false)"), "-");
  EXPECT_EQ(wished(std::nullopt, R"(, "reasoning_format": "deepseek")"), "may come");
  ApiRequest request = ThinkingRequest(R"(, "include_reasoning": false)");
  EXPECT_FALSE(ThinkingFormOf(kThink, "", &request)->shown);
}

// What the server was told of all chats holds where a request does not say it.
TEST(ThinkingForm, ThePlaceOfThoughtsHasADefault) {
  const auto place = [](ThoughtsPlace otherwise, const std::string& fields) {
    const auto body = ParseJson(R"({"messages": [{"role": "user", "content": "?"}])" + fields + "}");
    RequestDefaults defaults = OpenAiDefaults();
    defaults.thoughts = otherwise;
    const auto parsed = ParseRequest(Endpoint::kChatCompletions, std::get<Json>(body), defaults);
    return std::get<ApiRequest>(parsed).wishes.thoughts;
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

TEST(Thinking, EndsInThePromptWhereItIsForbidden) {
  EXPECT_TRUE(ForbidThinking(R"({"a": 1, "enable_thinking": false})"));
  for (const char* variables : {"", "{}", R"({"enable_thinking": true})", R"({"enable_thinking": 0})", "[]"})
    EXPECT_FALSE(ForbidThinking(variables)) << variables;
  EXPECT_EQ(WithThoughtEnded("<a><think>\n"), "<a><think>\n</think>\n\n");
  EXPECT_EQ(WithThoughtEnded("<a>"), "<a>");
  EXPECT_EQ(WithThoughtEnded("<a><think></think>"), "<a><think></think>");
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
    ApiRequest free = ThinkingRequest(field);
    ASSERT_TRUE(ThinkingFormOf(kThink, "<assistant>", &free).has_value());
    EXPECT_TRUE(Takes(free.generation.grammar, R"({"a": 1})"));
    EXPECT_TRUE(Takes(free.generation.grammar, "<think>\nhm {\n</think>\n\n{\"a\": 1}"));
    EXPECT_FALSE(Takes(free.generation.grammar, "<think>hm</think>so"));
    EXPECT_FALSE(Takes(free.generation.grammar, "<think>hm"));
    EXPECT_FALSE(Takes(free.generation.grammar, "hm</think>{}"));
    ApiRequest begun = ThinkingRequest(field);
    ASSERT_TRUE(ThinkingFormOf(kThink, "<assistant><think>\n", &begun)->begun);
    EXPECT_TRUE(Takes(begun.generation.grammar, "hm\n</think>\n\n{\"a\": 1}"));
    EXPECT_FALSE(Takes(begun.generation.grammar, R"({"a": 1})"));
  }
  // What says all of the text is kept to from its beginning.
  ApiRequest whole = ThinkingRequest(R"(, "grammar": "root ::= \"yes\"")");
  EXPECT_FALSE(ThinkingFormOf(kThink, "<assistant><think>", &whole)->begun);
  EXPECT_EQ(whole.generation.grammar.kind, GrammarText::Kind::kGbnf);
  ApiRequest none = ThinkingRequest(schema + R"(, "reasoning_format": "none")");
  ThinkingFormOf(kThink, "<assistant>", &none);
  EXPECT_EQ(none.generation.grammar.kind, GrammarText::Kind::kJsonSchema);
}

TEST(ThinkingForm, ACallThatIsRequiredComesAfterTheThought) {
  if (!HasGrammars()) GTEST_SKIP();
  const std::string tools =
      R"(, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required")";
  ApiRequest request = ThinkingRequest(tools);
  ASSERT_FALSE(ApplyTools(ToolFormat::kHermes, &request).has_value());
  ASSERT_TRUE(ThinkingFormOf(kThink, "<assistant><think>\n", &request)->begun);
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(Takes(request.generation.grammar, "hm</think>\n\n" + call));
  EXPECT_FALSE(Takes(request.generation.grammar, "hm</think>\n\nno"));
}

}  // namespace
}  // namespace longspec::openai
