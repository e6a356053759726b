// SPDX-License-Identifier: Apache-2.0
#include "cli/template_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "formats/tiny_model.h"

namespace longspec::cli {
namespace {

using openai::ThoughtsPlace;
using ::testing::HasSubstr;

struct Chats {
  std::string variables, error;
  ThoughtsPlace thoughts = ThoughtsPlace::kAuto;
};

Chats Ask(std::vector<std::string> args) {
  Chats chats;
  GenerationRequest request;
  CLI::App app;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  AddTemplateOptions(app, &request, "Server");
  AddThoughtsOption(app, &chats.thoughts, "Server");
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError& error) {
    chats.error = error.what();
  }
  chats.variables = request.template_variables;
  return chats;
}

TEST(TemplateOptions, WhetherAModelThinks) {
  const auto told = [](std::vector<std::string> args) {
    const Chats chats = Ask(std::move(args));
    EXPECT_EQ(chats.error, "");
    return chats.variables;
  };
  constexpr const char* kNot = R"({"enable_thinking":false})";
  EXPECT_EQ(told({}), "");
  for (const char* off : {"off", "0", "false", "disabled"}) EXPECT_EQ(told({"--reasoning", off}), kNot);
  for (const char* on : {"on", "1", "true", "enabled"})
    EXPECT_EQ(told({"--reasoning", on}), R"({"enable_thinking":true})");
  EXPECT_EQ(told({"--reasoning", "auto", "--reasoning-budget", "-1", "--reasoning-effort", "default"}), "");
  EXPECT_EQ(told({"--reasoning-budget", "0"}), kNot);
  EXPECT_EQ(told({"--reasoning-budget", "0", "--reasoning", "off"}), kNot);
  EXPECT_EQ(told({"--chat-template-kwargs", kNot}), kNot);
  // What is said of thinking alone counts more, wherever it stands.
  EXPECT_EQ(told({"--reasoning", "on", "--chat-template-kwargs", R"({"enable_thinking":false,"a":1})"}),
            R"({"enable_thinking":true,"a":1})");
  EXPECT_EQ(told({"--reasoning-effort", "low"}), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(told({"--reasoning-effort", "none"}), R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(told({"--reasoning-preserve"}), R"({"preserve_thinking":true,"clear_thinking":false,)"
                                            R"("truncate_history_thinking":false,"drop_thinking":false})");
  EXPECT_THAT(told({"--no-reasoning-preserve"}), HasSubstr(R"("preserve_thinking":false)"));
}

TEST(TemplateOptions, WhatIsWrongIsSaid) {
  EXPECT_EQ(Ask({"--reasoning", "maybe"}).error, "--reasoning: maybe must be on, off or auto");
  EXPECT_EQ(
      Ask({"--reasoning-budget", "100"}).error,
      "--reasoning-budget: 100 is not supported: how long a model thinks is not limited; 0: it does not "
      "think, -1: as long as it likes");
  EXPECT_EQ(Ask({"--reasoning", "on", "--reasoning-budget", "0"}).error,
            "--reasoning-budget: 0 has no effect with --reasoning on");
  EXPECT_THAT(Ask({"--reasoning-format", "deepseek-legacy"}).error,
              HasSubstr("--reasoning-format: deepseek-legacy not in {auto,none,deepseek}"));
}

TEST(TemplateOptions, WhereThoughtsGo) {
  EXPECT_EQ(Ask({}).thoughts, ThoughtsPlace::kAuto);
  EXPECT_EQ(Ask({"--reasoning-format", "auto"}).thoughts, ThoughtsPlace::kAuto);
  EXPECT_EQ(Ask({"--reasoning-format", "none"}).thoughts, ThoughtsPlace::kInContent);
  EXPECT_EQ(Ask({"--reasoning-format", "deepseek"}).thoughts, ThoughtsPlace::kApart);
}

// --- Templates that can do it, and one that cannot. ---

std::string RefusalOf(const std::string& chat_template, const std::string& variables) {
  const std::string path = ::testing::TempDir() + "/longspec_template_options_test.gguf";
  EXPECT_TRUE(WriteTinyModel({.chat_template = chat_template}, path).ok());
  auto engine = Engine::Load({.path = path, .vocab_only = true});
  std::filesystem::remove(path);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  GenerationRequest request;
  request.template_variables = variables;
  return CheckTemplateOptions(**engine, request).message();
}

TEST(TemplateOptions, ATemplateThatCannotTurnThoughtsOffIsSaid) {
  const std::string ask = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}<a>";
  const std::string off = R"({"enable_thinking":false})";
  EXPECT_THAT(RefusalOf(ask, off), HasSubstr("thinking cannot be turned off"));
  EXPECT_EQ(RefusalOf(ask, R"({"enable_thinking":true})"), "");
  EXPECT_EQ(RefusalOf(ask, ""), "");
  EXPECT_EQ(RefusalOf(ask + "{% if enable_thinking %}<b>{% endif %}", off), "");
  EXPECT_EQ(RefusalOf(ask + "<think>\n", off), "");               // which is ended at once
  EXPECT_EQ(RefusalOf("{{ messages[0].content }}<a>", off), "");  // it does not think
}

}  // namespace
}  // namespace longspec::cli
