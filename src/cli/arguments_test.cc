// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace longspec::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<NormalizedArguments> Normalize(std::vector<std::string> args) {
  return NormalizeArguments(std::move(args), [](const std::string& name) {
    static const std::set<std::string> with_value = {"-p",
                                                     "--prompt",
                                                     "-n",
                                                     "--predict",
                                                     "-t",
                                                     "--system-prompt",
                                                     "--cache-type-k",
                                                     "--spec-draft-n-max",
                                                     "--ctx-size"};
    return with_value.count(name) > 0;
  });
}

TEST(NormalizeArguments, LeavesKnownOptionsAlone) {
  const auto out =
      Normalize({"-p", "hello", "--predict=5", "-n128", "-n-1", "-t4", "--json", "-m./x.gguf", "-", ""});
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_THAT(out->args, ElementsAre("-p", "hello", "--predict=5", "-n128", "-n-1", "-t4", "--json",
                                     "-m./x.gguf", "-", ""));
  EXPECT_THAT(out->warnings, IsEmpty());
}

TEST(NormalizeArguments, MultiLetterOptionsWithOneDash) {
  const auto out = Normalize({"-sys", "be brief", "-ctk=f32", "-ctv", "bf16"});
  ASSERT_TRUE(out.ok());
  EXPECT_THAT(out->args,
              ElementsAre("--system-prompt", "be brief", "--cache-type-k=f32", "--cache-type-v", "bf16"));
  EXPECT_THAT(out->warnings, IsEmpty());
}

TEST(NormalizeArguments, OldSpellingsAreAcceptedWithAWarning) {
  for (const std::string old : {"--draft", "--draft-max", "--draft-n", "--num-speculative-tokens",
                                "--prompt-lookup-num-tokens", "--speculative-num-draft-tokens"}) {
    const auto out = Normalize({old, "6"});
    ASSERT_TRUE(out.ok());
    EXPECT_THAT(out->args, ElementsAre("--spec-draft-n-max", "6")) << old;
    EXPECT_THAT(out->warnings, ElementsAre(HasSubstr("--spec-draft-n-max")));
    EXPECT_THAT(out->warnings[0], HasSubstr(old));
  }
  EXPECT_THAT(Normalize({"--spec-ngram-size-n", "3"})->args, ElementsAre("--spec-ngram-max", "3"));
  EXPECT_THAT(Normalize({"--draft-min=2"})->args, ElementsAre("--spec-draft-n-min=2"));
}

TEST(NormalizeArguments, ValuesAreNeverRewritten) {
  const auto out = Normalize({"-p", "--draft", "--prompt", "-sys", "-sys", "-md", "--n-predict", "-1"});
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_THAT(out->args,
              ElementsAre("-p", "--draft", "--prompt", "-sys", "--system-prompt", "-md", "--predict", "-1"));
  EXPECT_THAT(out->warnings, IsEmpty());
}

TEST(NormalizeArguments, UnknownMultiLetterOptionsAreRefused) {
  for (const std::string unknown : {"-mdx", "-ngl", "-tb", "-no-xyz"}) {
    const auto out = Normalize({unknown, "x"});
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(out.status().message(), HasSubstr(unknown));
  }
}

// Every option of llama.cpp that has no name of its own here: accepted, with one warning, by a command that
// has what it would set.
TEST(NormalizeArguments, OptionsOfLlamaCppThatAreArrangedDifferently) {
  const auto has = [](const std::string& name) {
    static const std::set<std::string> with_value = {"--threads",    "--cache-type-k",
                                                     "--spec-type",  "--spec-tree",
                                                     "--batch-size", "--spec-suffix-min-prob"};
    return with_value.count(name) > 0;
  };
  const std::vector<std::vector<std::string>> without_effect = {{"-tb", "8"},
                                                                {"--threads-batch", "8"},
                                                                {"-td", "2"},
                                                                {"--threads-draft=2"},
                                                                {"-tbd", "2"},
                                                                {"-fa"},
                                                                {"-fa", "on"},
                                                                {"--flash-attn", "auto"},
                                                                {"--flash-attn=off"},
                                                                {"-ctkd", "q8_0"},
                                                                {"--cache-type-k-draft", "q8_0"},
                                                                {"-ctvd", "q8_0"},
                                                                {"--spec-draft-type-v", "q8_0"},
                                                                {"--spec-draft-p-split", "0.1"}};
  for (std::vector<std::string> args : without_effect) {
    const std::string name = args[0].substr(0, args[0].find('='));
    args.push_back("--json");
    const auto out = NormalizeArguments(args, has);
    ASSERT_TRUE(out.ok()) << name << ": " << out.status().message();
    EXPECT_THAT(out->args, ElementsAre("--json")) << name;
    ASSERT_EQ(out->warnings.size(), 1U) << name;
    EXPECT_THAT(out->warnings[0], ::testing::StartsWith(name + " has no effect: "));
    // Commands that have nothing it could mean know it as little as any other option.
    const auto refused = NormalizeArguments(args, [](const std::string&) { return false; });
    EXPECT_EQ(refused.ok(), name.starts_with("--")) << name;
    if (refused.ok()) {
      EXPECT_EQ(refused->args, args) << name;
    }
  }
  for (const std::string name : {"-ub", "--ubatch-size"}) {
    const auto out = NormalizeArguments({name, "128"}, has);
    ASSERT_TRUE(out.ok());
    EXPECT_THAT(out->args, ElementsAre("--batch-size", "128"));
    EXPECT_THAT(out->warnings, ElementsAre(name + " is called --batch-size here"));
  }
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--spec-draft-p-min", "0.6"}, {"--draft-p-min=0.6"}}) {
    const auto out = NormalizeArguments(args, has);
    ASSERT_TRUE(out.ok());
    EXPECT_THAT(out->args, ElementsAre("--spec-suffix-min-prob=0.6", "--spec-ppm-min-prob=0.6"));
    EXPECT_THAT(out->warnings, ElementsAre(HasSubstr("--spec-ppm-min-prob")));
  }
  const auto preset = NormalizeArguments({"--spec-default", "-x"}, has);
  ASSERT_TRUE(preset.ok());
  EXPECT_THAT(preset->args, ElementsAre("--spec-type=auto", "-x"));
  EXPECT_THAT(preset->warnings, ElementsAre("--spec-default is --spec-type auto here"));
}

// What follows is not taken for the value.
TEST(NormalizeArguments, AnEmptyValueThatIsAttached) {
  EXPECT_THAT(Normalize({"--prompt=", "--json"})->args, ElementsAre("--prompt", "", "--json"));
  EXPECT_THAT(Normalize({"-sys=", "-n", "4"})->args, ElementsAre("--system-prompt", "", "-n", "4"));
  EXPECT_THAT(Normalize({"--draft-max=", "x"})->args, ElementsAre("--spec-draft-n-max", "", "x"));
  EXPECT_THAT(Normalize({"--json=", "x"})->args, ElementsAre("--json=", "x"));  // takes none
  const auto has = [](const std::string& name) {
    return name == "--spec-suffix-min-prob" || name == "--spec-ppm-min-prob";
  };
  EXPECT_THAT(NormalizeArguments({"--draft-p-min=", "x"}, has)->args,
              ElementsAre("--spec-suffix-min-prob", "", "--spec-ppm-min-prob", "", "x"));
}

TEST(NormalizeArguments, AnOptionWithoutItsValueAtTheEnd) {
  EXPECT_THAT(Normalize({"-p"})->args, ElementsAre("-p"));
  EXPECT_THAT(Normalize({"-sys"})->args, ElementsAre("--system-prompt"));
}

}  // namespace
}  // namespace longspec::cli
