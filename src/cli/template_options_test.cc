// SPDX-License-Identifier: Apache-2.0
//
// A chat template may be given as a name, a text or a file.
#include "cli/template_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "base/testing/files.h"

namespace longspec::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TemplateChoice, IsANameATextOrAFile) {
  EXPECT_EQ(*ReadTemplateChoice({}), "");
  EXPECT_EQ(*ReadTemplateChoice({.name_or_source = "{{ messages }}"}), "{{ messages }}");
  EXPECT_THAT(*ReadTemplateChoice({.name_or_source = "chatml"}), HasSubstr("<|im_start|>"));
  const longspec::testing::Folder folder;
  const std::string file = folder.Write("x.jinja", "{{ messages[0].content }}\n");
  EXPECT_EQ(*ReadTemplateChoice({.file = file}), "{{ messages[0].content }}\n");
}

TEST(TemplateChoice, WhatIsWrongIsSaidInALine) {
  const auto error = [](const TemplateChoice& choice) {
    const std::string message = ReadTemplateChoice(choice).status().message();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  };
  EXPECT_THAT(error({.name_or_source = "chatlm"}),
              StartsWith("--chat-template: chat template 'chatlm': it is "));
  EXPECT_THAT(error({.name_or_source = "{% for m in messages %}"}),
              StartsWith("--chat-template: chat template, line 1: "));
  EXPECT_EQ(error({.name_or_source = "chatml", .file = "x"}),
            "--chat-template and --chat-template-file: give one of them");
  EXPECT_EQ(error({.file = "/no/such.jinja"}),
            "--chat-template-file: cannot read /no/such.jinja: No such file or directory");
  const longspec::testing::Folder folder;
  const std::string file = folder.Write("x.jinja", "a\n{{ b | nofilter }}");
  EXPECT_THAT(error({.file = file}),
              StartsWith("--chat-template-file " + file + ": chat template, line 2: "));
}

}  // namespace

namespace {

using api::ThoughtsPlace;
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

}  // namespace

}  // namespace longspec::cli
