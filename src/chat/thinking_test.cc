// SPDX-License-Identifier: Apache-2.0
//
// Thoughts are told from what is said, and a prompt forbids them where a request does.
#include "chat/thinking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "chat/answer_reader.h"
#include "chat/dialect.h"

namespace longspec::chat {
namespace {

using ::testing::HasSubstr;

constexpr ThinkingTags kThink = kThinkTags;

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

TEST(Thinking, MistralsTagsAreKnown) {
  EXPECT_EQ(ThinkingTagsOf("{{ '[THINK]' + block['thinking'] + '[/THINK]' }}")->end, "[/THINK]");
  EXPECT_EQ(WithThoughtEnded(kMistralThinkTags, "[/INST][THINK]"), "[/INST][THINK][/THINK]\n\n");
  const ThinkingForm form = {.tags = kMistralThinkTags};
  EXPECT_EQ(SplitAt(form, {"[TH", "INK]hm <think>[/THI", "NK]\n\nYes."}), (Split{"hm <think>", "Yes."}));
}

TEST(Dialect, IsReadOffTheTemplate) {
  const Dialect magistral =
      DialectOf("{% if tools %}[TOOL_CALLS]f[ARGS]{% endif %}{% if b['type'] == 'thinking' %}[/THINK]");
  EXPECT_EQ(magistral.tools, ToolFormat::kMistral);
  EXPECT_TRUE(magistral.thinks() && magistral.thoughts_in_contents);
  EXPECT_FALSE(DialectOf("[THINK]{{ m.reasoning_content or m['thinking'] }}[/THINK]").thoughts_in_contents);
  const Dialect plain = DialectOf("{{ content }}");
  EXPECT_FALSE(plain.thinks());
  const Dialect harmony =
      DialectOf("<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>");
  EXPECT_TRUE(harmony.thinks() && harmony.has_channels());
}

TEST(Thinking, StandsInContentsForTemplatesThatLookThere) {
  GenerationRequest request;
  request.messages = {{"user", "?"},
                      {"assistant", "Yes.", R"({"reasoning":"hm","reasoning_content":"hm"})"},
                      {"user", "?"},
                      {"assistant", "", R"({"reasoning_content":"so","tool_calls":[]})"},
                      {"assistant", "And", R"({"reasoning_content":"more"})"}};
  request.prompt_end = PromptEnd::kContinued;
  PutThoughtsIntoContents(request);
  EXPECT_THAT(request.messages[1].more,
              HasSubstr(R"("content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Yes."}])"));
  EXPECT_THAT(request.messages[3].more, HasSubstr(R"("content":[{"type":"thinking","thinking":"so"}])"));
  EXPECT_EQ(request.messages[4].more, R"({"reasoning_content":"more"})");
  EXPECT_EQ(request.messages[0].more, "");
}

TEST(Thinking, EndsInThePromptWhereItIsForbidden) {
  EXPECT_TRUE(ForbidThinking(R"({"a": 1, "enable_thinking": false})"));
  for (const char* variables : {"", "{}", R"({"enable_thinking": true})", R"({"enable_thinking": 0})", "[]"})
    EXPECT_FALSE(ForbidThinking(variables)) << variables;
  EXPECT_EQ(WithThoughtEnded(kThinkTags, "<a><think>\n"), "<a><think>\n</think>\n\n");
  EXPECT_EQ(WithThoughtEnded(kThinkTags, "<a>"), "<a><think>\n\n</think>\n\n");
  EXPECT_EQ(WithThoughtEnded(kThinkTags, "<a><think></think>"), "<a><think></think>");
}

// A template is trusted that knows what it is told; behind others an empty thought stands.
TEST(Thinking, IsEmptyWhereTheTemplateLeavesItToTheModel) {
  const std::string strips = "{{ m.content.split('</think>')[-1] }}";
  const std::string knows = strips + "{% if enable_thinking %}<b>{% endif %}";
  EXPECT_EQ(WithoutThought(strips, "<a>"), "<a><think>\n\n</think>\n\n");
  EXPECT_EQ(WithoutThought(knows, "<a>"), "<a>");
  EXPECT_EQ(WithoutThought(knows + "<think>", "<a><think>"), "<a><think></think>\n\n");
  EXPECT_EQ(WithoutThought("{{ m.content }}", "<a>"), "<a>");  // it does not think
  const std::string harmony = "<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>";
  EXPECT_EQ(WithoutThought(harmony, "<|start|>assistant"),
            "<|start|>assistant<|channel|>analysis<|message|><|end|><|start|>assistant");
}

}  // namespace
}  // namespace longspec::chat
