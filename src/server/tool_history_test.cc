// SPDX-License-Identifier: Apache-2.0
//
// What a model is told of earlier calls, by templates that are particular about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "server/testing/served_app.h"

namespace longspec::server {
namespace {

using longspec::testing::ServedApp;
using nlohmann::json;
using ::testing::ContainsRegex;

TEST(ToolHistory, MistralsTemplateTakesAnybodysIds) {
  const std::string source = longspec::testing::ReadText(
      longspec::testing::SourcePath("src/jinja/testdata/templates/mistral_v3.jinja"));
  ASSERT_FALSE(source.empty());
  ServedApp app("tool_history_test", {.chat_template = source});
  const json function = {{"name", "f"}, {"parameters", {{"type", "object"}}}};
  const json call = {
      {"id", "call_1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", R"({"a": 1})"}}}};
  const json body = {
      {"tools", json::array({{{"type", "function"}, {"function", function}}})},
      {"messages", json::array({{{"role", "user"}, {"content", "?"}},
                                {{"role", "assistant"}, {"tool_calls", json::array({call})}},
                                {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "4"}}})}};
  const std::string prompt = app.Ok("/apply-template", body)["prompt"];
  EXPECT_THAT(prompt,
              ContainsRegex(
                  R"(\[TOOL_CALLS\] \[\{"arguments": \{"a": 1\}, "name": "f", "id": "[a-zA-Z0-9]{9}"\}\])"));
  EXPECT_THAT(prompt, ContainsRegex(R"("content": 4, "call_id": "[a-zA-Z0-9]{9}")"));
}

json Call(const char* id, const char* name, const char* arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

json Message(const char* role, const char* content, json more = json::object()) {
  more.update({{"role", role}, {"content", content}});
  return more;
}

// As gpt-oss's template has it: one call a message, one of content and thinking, a name for each result that
// is that of the call before it, and a description of each function.
constexpr const char* kOneCallAMessage =
    "{%- set last = namespace(name=none) -%}"
    "{%- for tool in tools or [] -%}{{ '// ' + tool.function.description + '\n' }}{%- endfor -%}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'assistant' and m.tool_calls -%}"
    "{%- if m.content and m.thinking -%}{{ raise_exception('one of content and thinking') }}{%- endif -%}"
    "{%- if m.content or m.thinking -%}"
    "<|start|>assistant<|channel|>analysis<|message|>{{ m.content or m.thinking }}<|end|>{%- endif -%}"
    "{%- set call = m.tool_calls[0].function -%}{%- set last.name = call.name -%}"
    "<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>"
    "{{ call.arguments | tojson }}<|call|>"
    "{%- elif m.role == 'tool' -%}"
    "<|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>{{ m.content | tojson "
    "}}<|end|>"
    "{%- else -%}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{%- endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}";

TEST(ToolHistory, EachCallIsAMessageWhereATemplateKnowsOne) {
  ServedApp app("tool_history_channels_test", {.chat_template = kOneCallAMessage});
  const json calls = json::array({Call("1", "f", R"({"a": 1})"), Call("2", "g", "{}")});
  const json body = {
      {"tools", json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}})},
      {"messages",
       json::array({Message("user", "?"),
                    Message("assistant", "I look.", {{"reasoning_content", "hm"}, {"tool_calls", calls}}),
                    Message("tool", "of g", {{"tool_call_id", "2"}}),
                    Message("tool", "of f", {{"tool_call_id", "1"}})})}};
  EXPECT_EQ(app.Ok("/apply-template", body)["prompt"],
            "// \n<|start|>user<|message|>?<|end|>"
            "<|start|>assistant<|channel|>analysis<|message|>hm\n\nI look.<|end|>"
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}<|call|>"
            "<|start|>functions.f to=assistant<|channel|>commentary<|message|>\"of f\"<|end|>"
            "<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>"
            "<|start|>functions.g to=assistant<|channel|>commentary<|message|>\"of g\"<|end|>"
            "<|start|>assistant");
}

// As Magistral's template has it.
TEST(ToolHistory, ThoughtsArePartsOfContentsWhereATemplateLooksThere) {
  ServedApp app(
      "tool_history_thoughts_test",
      {.chat_template = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                        "{% for b in m.content %}{% if b['type'] == 'thinking' %}"
                        "{{ '[THINK]' + b['thinking'] + '[/THINK]' }}{% else %}{{ b['text'] }}{% endif %}"
                        "{% endfor %}{% endif %}|{% endfor %}"});
  const json body = {{"messages", json::array({Message("user", "a"),
                                               Message("assistant", "b", {{"reasoning_content", "hm"}}),
                                               Message("user", "c")})}};
  EXPECT_EQ(app.Ok("/apply-template", body)["prompt"], "a|[THINK]hm[/THINK]b|c|");
}

}  // namespace
}  // namespace longspec::server
