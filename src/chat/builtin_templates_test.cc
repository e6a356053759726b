// SPDX-License-Identifier: Apache-2.0
//
// Templates that models without one may use are those of llama.cpp.
#include "chat/builtin_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "jinja/chat_template.h"

namespace longspec::chat {
namespace {

using ::testing::HasSubstr;

std::string Rendered(std::string_view name, std::vector<ChatMessage> messages, bool begins_answer = true) {
  const auto source = ChosenTemplate(name);
  EXPECT_TRUE(source.ok()) << source.status().message();
  if (!source.ok()) return {};
  const auto parsed = ChatTemplate::Parse(*source);
  EXPECT_TRUE(parsed.ok()) << name << ": " << parsed.status().message();
  if (!parsed.ok()) return {};
  const auto text =
      (*parsed)->Render({.messages = std::move(messages), .add_generation_prompt = begins_answer});
  EXPECT_TRUE(text.ok()) << name << ": " << text.status().message();
  return text.ok() ? *text : std::string();
}

struct Case {
  const char *name, *text;
};

// As llama.cpp writes them (src/llama-chat.cpp), but for the token that begins a text.
constexpr Case kCases[] = {
    {"chatml",
     "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n u <|im_end|>\n<|im_start|>assistant\n "
     "a <|im_end|>\n<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n"},
    {"llama2", "[INST] S\n u  [/INST] a </s>[INST] v [/INST]"},
    {"llama2-sys", "[INST] <<SYS>>\nS\n<</SYS>>\n\n u  [/INST] a </s>[INST] v [/INST]"},
    {"llama2-sys-bos", "[INST] <<SYS>>\nS\n<</SYS>>\n\n u  [/INST] a </s><s>[INST] v [/INST]"},
    {"llama2-sys-strip", "[INST] <<SYS>>\nS\n<</SYS>>\n\nu [/INST]a</s>[INST] v [/INST]"},
    {"llama3",
     "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nu"
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|><|start_header_id|>user"
     "<|end_header_id|>\n\nv<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama4",
     "<|header_start|>system<|header_end|>\n\nS<|eot|><|header_start|>user<|header_end|>\n\nu<|eot|>"
     "<|header_start|>assistant<|header_end|>\n\na<|eot|><|header_start|>user<|header_end|>\n\nv<|eot|>"
     "<|header_start|>assistant<|header_end|>\n\n"},
    {"mistral-v1", " [INST] S\n\n u  [/INST]  a </s> [INST] v [/INST]"},
    {"mistral-v3", "[INST] S\n\n u [/INST] a</s>[INST] v[/INST]"},
    {"mistral-v3-tekken", "[INST]S\n\n u [/INST] a </s>[INST]v[/INST]"},
    {"mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST]  u [/INST]  a </s>[INST] v[/INST]"},
    {"mistral-v7-tekken", "[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST] u [/INST] a </s>[INST]v[/INST]"},
    {"phi3",
     "<|system|>\nS<|end|>\n<|user|>\n u <|end|>\n<|assistant|>\n a <|end|>\n<|user|>\nv<|end|>\n"
     "<|assistant|>\n"},
    {"phi4",
     "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|> u <|im_end|><|im_start|>assistant"
     "<|im_sep|> a <|im_end|><|im_start|>user<|im_sep|>v<|im_end|><|im_start|>assistant<|im_sep|>"},
    {"falcon3", "<|system|>\nS\n<|user|>\n u \n<|assistant|>\n a \n<|user|>\nv\n<|assistant|>\n"},
    {"zephyr",
     "<|system|>\nS<|endoftext|>\n<|user|>\n u <|endoftext|>\n<|assistant|>\n a <|endoftext|>\n<|user|>\nv"
     "<|endoftext|>\n<|assistant|>\n"},
    {"granite",
     "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|> u "
     "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|> a <|end_of_text|>\n<|start_of_role|>user"
     "<|end_of_role|>v<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"},
    {"megrez",
     "<|role_start|>system<|role_end|>S<|turn_end|><|role_start|>user<|role_end|> u <|turn_end|>"
     "<|role_start|>assistant<|role_end|> a <|turn_end|><|role_start|>user<|role_end|>v<|turn_end|>"
     "<|role_start|>assistant<|role_end|>"},
    {"monarch", "system\nS</s>\n<s>user\n u </s>\n<s>assistant\n a </s>\n<s>user\nv</s>\n<s>assistant\n"},
    {"gemma",
     "<start_of_turn>user\nS\n\nu<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n<start_of_turn>user\nv"
     "<end_of_turn>\n<start_of_turn>model\n"},
    {"openchat",
     "S<|end_of_turn|>GPT4 Correct User:  u <|end_of_turn|>GPT4 Correct Assistant:  a <|end_of_turn|>"
     "GPT4 Correct User: v<|end_of_turn|>GPT4 Correct Assistant:"},
    {"vicuna", "S\n\nUSER:  u \nASSISTANT:  a </s>\nUSER: v\nASSISTANT:"},
    {"vicuna-orca", "SYSTEM: S\nUSER:  u \nASSISTANT:  a </s>\nUSER: v\nASSISTANT:"},
    {"deepseek", "S### Instruction:\n u \n### Response:\n a \n<|EOT|>\n### Instruction:\nv\n### Response:\n"},
    {"deepseek2", "S\n\nUser:  u \n\nAssistant:  a <｜end▁of▁sentence｜>User: v\n\nAssistant:"},
    {"deepseek3", "S\n\n<｜User｜> u <｜Assistant｜> a <｜end▁of▁sentence｜><｜User｜>v<｜Assistant｜>"},
    {"command-r",
     "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>u"
     "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>a<|END_OF_TURN_TOKEN|>"
     "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>v<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
    {"exaone3", "[|system|]S[|endofturn|]\n[|user|]u\n[|assistant|]a[|endofturn|]\n[|user|]v\n[|assistant|]"},
    {"smolvlm",
     "<|im_start|>S\n\nUser:  u <end_of_utterance>\nAssistant:  a <end_of_utterance>\nUser: v"
     "<end_of_utterance>\nAssistant:"},
};

TEST(BuiltinTemplates, AreThoseOfLlamaCpp) {
  const std::vector<ChatMessage> messages = {
      {"system", "S"}, {"user", " u "}, {"assistant", " a "}, {"user", "v"}};
  std::set<std::string_view> tested;
  for (const Case& one : kCases) {
    EXPECT_EQ(Rendered(one.name, messages), one.text) << one.name;
    tested.insert(one.name);
  }
  const auto names = BuiltinTemplateNames();
  EXPECT_EQ(tested, std::set<std::string_view>(names.begin(), names.end()));
}

TEST(BuiltinTemplates, MayEndWithTheLastMessage) {
  EXPECT_EQ(Rendered("chatml", {{"user", "u"}}, false), "<|im_start|>user\nu<|im_end|>\n");
  EXPECT_EQ(Rendered("gemma", {{"user", "u"}}, false), "<start_of_turn>user\nu<end_of_turn>\n");
  EXPECT_EQ(Rendered("vicuna", {{"user", "u"}}, false), "USER: u\n");
}

TEST(ChosenTemplate, IsANameOrJinja) {
  EXPECT_EQ(*ChosenTemplate("chatml\n"), *ChosenTemplate("chatml"));
  EXPECT_EQ(*ChosenTemplate("{{ messages }}\n"), "{{ messages }}\n");
  EXPECT_EQ(*ChosenTemplate("{% if a %}b{% endif %}"), "{% if a %}b{% endif %}");
  const Status unknown = ChosenTemplate("llama-3").status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.message(),
              HasSubstr("'llama-3': it is neither Jinja, which has {{ or {% in it, nor one of "));
  EXPECT_THAT(unknown.message(), HasSubstr("llama2, llama2-sys"));
  for (const char* text : {"", "two\nlines"})
    EXPECT_EQ(ChosenTemplate(text).status().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace longspec::chat
