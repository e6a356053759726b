// SPDX-License-Identifier: Apache-2.0
//
// What a request says beside its messages gets to the chat template.
#include "engine/template_variables.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace longspec {
namespace {

TEST(TemplateVariables, AreThoseGivenWhereMessagesSayNoMore) {
  EXPECT_EQ(*TemplateVariables({{"user", "a"}}, ""), "");
  EXPECT_EQ(*TemplateVariables({{"user", "a"}}, "{\"x\": 1}"), "{\"x\": 1}");
}

TEST(TemplateVariables, HaveTheMessagesWithWhatTheySayMore) {
  std::vector<Message> messages = {{"user", "a\xff\"\n"}, {"assistant", ""}};
  messages[1].more = R"( {"content": null, "calls": [{"id": 18446744073709551616, "x": 0.10}]} )";
  const std::string text = *TemplateVariables(messages, R"({"tools": [0.10]} )");
  // Numbers as they were written, though no parser here could hold them.
  EXPECT_NE(text.find("18446744073709551616"), std::string::npos) << text;
  EXPECT_NE(text.find("0.10"), std::string::npos);
  const auto list = nlohmann::json::parse(*TemplateVariables(messages, ""))["messages"];
  EXPECT_EQ(list[0]["content"], "a\xEF\xBF\xBD\"\n");
  EXPECT_EQ(list[1]["role"], "assistant");
  EXPECT_TRUE(list[1]["content"].is_null());
  // Messages that are given count.
  EXPECT_EQ(*TemplateVariables(messages, R"({"messages": []})"), R"({"messages": []})");
}

TEST(TemplateVariables, MustBeObjects) {
  std::vector<Message> messages = {{"user", "a"}};
  messages[0].more = "{}";
  EXPECT_EQ(nlohmann::json::parse(*TemplateVariables(messages, ""))["messages"].size(), 1U);
  for (const char* wrong : {"[]", "{", "3", "{\"a\": 1} x", "[{}]"}) {
    EXPECT_FALSE(TemplateVariables(messages, wrong).ok()) << wrong;
    messages[0].more = wrong;
    EXPECT_FALSE(TemplateVariables(messages, "").ok()) << wrong;
    messages[0].more = "{}";
  }
}

}  // namespace
}  // namespace longspec
