// SPDX-License-Identifier: Apache-2.0
//
// What a model is told of earlier calls, by templates that are particular about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/testing/source_path.h"
#include "server/testing/served_app.h"

namespace longspec::server {
namespace {

using longspec::testing::ServedApp;
using nlohmann::json;
using ::testing::ContainsRegex;

TEST(ToolHistory, MistralsTemplateTakesAnybodysIds) {
  std::ifstream file(longspec::testing::SourcePath("src/jinja/testdata/templates/mistral_v3.jinja"));
  const std::string source((std::istreambuf_iterator<char>(file)), {});
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

}  // namespace
}  // namespace longspec::server
