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
  for (const std::string unknown : {"-mdx", "-ngl", "-fa", "-no-xyz"}) {
    const auto out = Normalize({unknown, "x"});
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(out.status().message(), HasSubstr(unknown));
  }
}

TEST(NormalizeArguments, AnOptionWithoutItsValueAtTheEnd) {
  EXPECT_THAT(Normalize({"-p"})->args, ElementsAre("-p"));
  EXPECT_THAT(Normalize({"-sys"})->args, ElementsAre("--system-prompt"));
}

}  // namespace
}  // namespace longspec::cli
