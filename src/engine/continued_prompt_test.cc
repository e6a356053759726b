// SPDX-License-Identifier: Apache-2.0
//
// A prompt that goes on with the last message ends where its content does, whatever the template is.
#include "engine/continued_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status_macros.h"
#include "engine/template_variables.h"
#include "jinja/chat_template.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

Result<std::string> Continued(const std::string& source, const std::vector<Message>& messages) {
  LS_ASSIGN(const auto parsed, ChatTemplate::Parse(source));
  return ContinuedPrompt(messages, [&](const std::vector<Message>& marked) {
    ChatTemplateInput input;
    for (const Message& message : marked) input.messages.push_back({message.role, message.content});
    input.add_generation_prompt = false;
    input.extra_json = *TemplateVariables(marked, "");
    return parsed->Render(input);
  });
}

constexpr const char* kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(ContinuedPrompt, EndsWhereTheContentDoes) {
  EXPECT_EQ(*Continued(kPlain, {{"user", "hi"}, {"assistant", "Well"}}), "<user>hi</user><assistant>Well");
  EXPECT_EQ(*Continued(kPlain, {{"user", "hi"}, {"assistant", ""}}), "<user>hi</user><assistant>");
  EXPECT_EQ(*Continued(kPlain, {{"user", "hi"}}), "<user>hi");
  EXPECT_EQ(*Continued(kPlain, {{"user", "</assistant>"}, {"assistant", "</assistant> a "}}),
            "<user></assistant></user><assistant></assistant> a ");
}

TEST(ContinuedPrompt, IsNotMisledByWhatMessagesSay) {
  const std::string mark = "[this-message-goes-on]";
  EXPECT_EQ(*Continued(kPlain, {{"user", mark}, {"assistant", mark + " or not"}}),
            "<user>" + mark + "</user><assistant>" + mark + " or not");
}

TEST(ContinuedPrompt, KeepsTheContentsEndWhereTheTemplateTrims) {
  const std::string trims = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}";
  EXPECT_EQ(*Continued(trims, {{"user", " hi "}, {"assistant", " Well, "}}), "<user>hi\n<assistant>Well, ");
}

// What Qwen3 puts before the last answer.
TEST(ContinuedPrompt, HasWhatTheTemplatePutsBeforeTheContent) {
  const std::string thinks =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}<think>{{ m.reasoning_content "
      "}}</think>"
      "{% endif %}{{ m.content }}</>{% endfor %}";
  EXPECT_EQ(*Continued(thinks, {{"user", "hi"}, {"assistant", "Well", R"({"reasoning_content":"hm"})"}}),
            "<user>hi</><assistant><think>hm</think>Well");
}

TEST(ContinuedPrompt, NeedsATemplateThatShowsTheMessage) {
  const auto hidden = Continued("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
                                {{"user", "hi"}, {"assistant", "Well"}});
  ASSERT_FALSE(hidden.ok());
  EXPECT_THAT(hidden.status().message(), HasSubstr("does not show the last message"));
}

}  // namespace
}  // namespace longspec
