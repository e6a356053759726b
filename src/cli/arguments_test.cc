// SPDX-License-Identifier: Apache-2.0
//
// Options as other programs write them are understood, or refused with what would be right.
#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "base/testing/source_path.h"
#include "cli/command.h"

namespace longspec::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Treatment = ForeignOption::Treatment;
using Values = ForeignOption::Values;

// A command that has these options, all with values but those that are named.
Result<NormalizedArguments> NormalizeFor(const std::set<std::string>& valued, std::vector<std::string> args,
                                         const std::set<std::string>& flags = {}) {
  return NormalizeArguments(std::move(args), [&](const std::string& name) {
    if (valued.count(name) > 0) return OptionKind::kValued;
    return flags.count(name) > 0 ? OptionKind::kFlag : OptionKind::kUnknown;
  });
}

Result<NormalizedArguments> Normalize(std::vector<std::string> args) {
  return NormalizeFor(
      {"-p", "--prompt", "-n", "--predict", "-t", "--system-prompt", "--cache-type-k", "--cache-type-v",
       "--spec-draft-n-max", "--spec-draft-n-min", "--spec-ngram-max", "--ctx-size"},
      std::move(args), {"--json"});
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
  for (const std::string unknown : {"-mdx", "-xyz", "-no-xyz"}) {
    const auto out = Normalize({unknown, "x"});
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(out.status().message(), HasSubstr(unknown));
  }
}

TEST(NormalizeArguments, OneLineForAllThatHasNoEffect) {
  const std::set<std::string> has = {"--threads", "--port", "--batch-size"};
  const auto warnings = [&](std::vector<std::string> args) { return NormalizeFor(has, args)->warnings; };
  EXPECT_THAT(warnings({"--mlock"}), ElementsAre("--mlock has no effect here"));
  EXPECT_THAT(warnings({"-fa", "on", "--mlock", "--mlock"}),
              ElementsAre("-fa and --mlock have no effect here"));
  const auto out =
      NormalizeFor(has, {"-ngl", "99", "--threads", "4", "--no-mmap", "-cb", "--flash-attn=off"});
  EXPECT_THAT(out->args, ElementsAre("--threads", "4"));
  EXPECT_THAT(out->warnings, ElementsAre("-ngl, --no-mmap, -cb and --flash-attn have no effect here"));
  // A switch takes what follows only if that is one.
  EXPECT_THAT(NormalizeFor(has, {"-fa", "-t", "1"})->args, ElementsAre("-t", "1"));
}

TEST(NormalizeArguments, WhatSetsSomethingElse) {
  const std::set<std::string> has = {"--spec-type", "--batch-size", "--port", "--cache-ram"};
  const auto preset = NormalizeFor(has, {"--spec-default", "-x"});
  ASSERT_TRUE(preset.ok());
  EXPECT_THAT(preset->args, ElementsAre("--spec-type=auto", "-x"));
  EXPECT_THAT(preset->warnings, ElementsAre("--spec-default is --spec-type auto here"));
  EXPECT_THAT(NormalizeFor(has, {"-ub", "128"})->warnings, ElementsAre("-ub is called --batch-size here"));
}

TEST(NormalizeArguments, WhatWouldChangeTheAnswerIsRefusedByName) {
  const std::set<std::string> has = {"--threads", "--temp", "--port"};
  const auto error = [&](std::vector<std::string> args) {
    const auto out = NormalizeFor(has, std::move(args));
    return out.ok() ? std::string() : out.status().message();
  };
  EXPECT_THAT(error({"--lora", "a.gguf"}), StartsWith("--lora: is not supported: merge it"));
  EXPECT_THAT(error({"-hf", "a/b"}), StartsWith("-hf: nothing is downloaded: -m names"));
  EXPECT_THAT(error({"--mirostat", "2"}), StartsWith("--mirostat 2: is not supported"));
  EXPECT_EQ(error({"--mirostat", "0", "--typical=1.00", "--top-nsigma", "-1"}), "");
  EXPECT_THAT(error({"--reasoning", "off"}), StartsWith("--reasoning off: "));
  EXPECT_EQ(error({"--reasoning", "auto"}), "");
}

// What follows is not taken for the value.
TEST(NormalizeArguments, AnEmptyValueThatIsAttached) {
  EXPECT_THAT(Normalize({"--prompt=", "--json"})->args, ElementsAre("--prompt", "", "--json"));
  EXPECT_THAT(Normalize({"-sys=", "-n", "4"})->args, ElementsAre("--system-prompt", "", "-n", "4"));
  EXPECT_THAT(Normalize({"--draft-max=", "x"})->args, ElementsAre("--spec-draft-n-max", "", "x"));
  EXPECT_THAT(Normalize({"--json=", "x"})->args, ElementsAre("--json=", "x"));  // takes none
}

TEST(NormalizeArguments, AnOptionWithoutItsValueAtTheEnd) {
  EXPECT_THAT(Normalize({"-p"})->args, ElementsAre("-p"));
  EXPECT_THAT(Normalize({"-sys"})->args, ElementsAre("--system-prompt"));
  EXPECT_THAT(NormalizeFor({"--threads"}, {"-ngl"})->warnings, ElementsAre("-ngl has no effect here"));
}

// --- The whole table, before the commands that it is for. ---

// What a command makes of arguments: the warnings and what CLI11 says of the rest; or the refusal.
struct Outcome {
  std::string refusal, parse_error;
  std::vector<std::string> args, warnings;
};

class CommandLine {
 public:
  explicit CommandLine(const std::string& name) {
    const auto& commands = Commands();
    const auto command = std::ranges::find_if(commands, [&](const Command& one) { return one.name == name; });
    app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    runner_ = command->setup(app_);
  }

  OptionKind KindOf(const std::string& name) const {
    const CLI::Option* option = app_.get_option_no_throw(name);
    if (option == nullptr) return OptionKind::kUnknown;
    return option->get_items_expected_max() > 0 ? OptionKind::kValued : OptionKind::kFlag;
  }

  Outcome Take(std::vector<std::string> args) {
    Outcome outcome;
    auto out = NormalizeArguments(std::move(args), [this](const std::string& name) { return KindOf(name); });
    if (!out.ok()) {
      outcome.refusal = out.status().message();
      return outcome;
    }
    outcome.args = out->args;
    outcome.warnings = out->warnings;
    std::vector<std::string> rest = out->args;
    rest.insert(rest.end(), {"-m", "x.gguf"});
    try {
      app_.parse(std::vector<std::string>(rest.rbegin(), rest.rend()));
    } catch (const CLI::CallForHelp&) {
    } catch (const CLI::ExtrasError&) {
      outcome.parse_error = "unknown " + app_.remaining().front();
    } catch (const CLI::ParseError& error) {
      outcome.parse_error = error.what();
    }
    return outcome;
  }

 private:
  CLI::App app_;
  Runner runner_;
};

std::vector<std::string> WithValues(std::string_view spelling, Values values) {
  std::vector<std::string> args = {std::string(spelling)};
  if (values == Values::kOne) args.emplace_back("1");
  if (values == Values::kTwo) args.insert(args.end(), {"1", "2"});
  return args;
}

TEST(ForeignOptions, EachDoesWhatItsLineSays) {
  for (const ForeignOption& foreign : ForeignOptions()) {
    const std::set<std::string> has = {std::string(foreign.needs), std::string(foreign.options[0]),
                                       std::string(foreign.options[1])};
    for (const std::string_view spelling : foreign.spellings) {
      if (spelling.empty()) continue;
      std::vector<std::string> args = WithValues(spelling, foreign.values);
      args.emplace_back("--next");
      const auto out = NormalizeFor(has, args, {"--next"});
      const std::string name(spelling);
      switch (foreign.treatment) {
        case Treatment::kNoEffect:
          ASSERT_TRUE(out.ok()) << name << ": " << out.status().message();
          EXPECT_THAT(out->args, ElementsAre("--next")) << name;
          EXPECT_THAT(out->warnings, ElementsAre(name + " has no effect here"));
          break;
        case Treatment::kRefused:
          EXPECT_TRUE(foreign.IsHarmless("1") || !out.ok()) << name;
          if (!out.ok()) {
            EXPECT_THAT(out.status().message(), StartsWith(name));
            EXPECT_THAT(out.status().message(), HasSubstr(std::string(foreign.text)));
          }
          break;
        case Treatment::kSpelling:
        case Treatment::kRenamed:
        case Treatment::kSets:
          ASSERT_TRUE(out.ok()) << name << ": " << out.status().message();
          EXPECT_EQ(out->warnings.size(), foreign.treatment == Treatment::kSpelling ? 0U : 1U) << name;
          EXPECT_THAT(out->args.front(), StartsWith(std::string(foreign.options[0]))) << name;
          break;
      }
      // To commands that have nothing it could mean it is as unknown as any other.
      if (foreign.needs.empty()) continue;
      const auto unknown = NormalizeFor({}, args);
      EXPECT_TRUE(!unknown.ok() || unknown->args == args) << name;
    }
  }
}

// Each option of llama-server (its spellings and how many values follow, testdata/llama_server_options.txt)
// is one of `serve`, has an equal, is without effect, or is refused by name: none is unknown, none takes its
// neighbour for a value or leaves its value behind.
TEST(ForeignOptions, ServeKnowsTheCommandLineOfLlamaServer) {
  std::ifstream file(testing::SourcePath("src/cli/testdata/llama_server_options.txt"));
  int n_options = 0, n_refused = 0;
  CommandLine serve("serve");
  for (std::string line; std::getline(file, line); ++n_options) {
    std::istringstream words(line);
    std::string name, values;
    words >> name >> values;
    const OptionKind kind = serve.KindOf(name);
    if (kind != OptionKind::kUnknown) {
      EXPECT_EQ(kind == OptionKind::kValued, values == "1") << line;
      continue;
    }
    std::vector<std::string> args = {name};
    for (int i = 0; i < (values == "?" ? 1 : std::stoi(values)); ++i) args.emplace_back("1");
    if (name == "-l") args.back() = "1+1";
    if (name == "--chat-template-kwargs") args.back() = "{}";
    if (name == "--reasoning-budget") args.back() = "0";
    const Outcome outcome = serve.Take(args);
    n_refused += outcome.refusal.empty() ? 0 : 1;
    if (!outcome.refusal.empty()) {
      EXPECT_THAT(outcome.refusal, StartsWith(name)) << line;
      EXPECT_THAT(outcome.refusal, HasSubstr(": ")) << line;
    } else {
      const bool is_folder = outcome.parse_error.find("Directory") != std::string::npos;
      const bool is_choice = outcome.parse_error.find("not in {") != std::string::npos;
      const bool is_unread = outcome.parse_error.find(": has no effect with ") != std::string::npos;
      EXPECT_TRUE(outcome.parse_error.empty() || is_folder || is_choice || is_unread)
          << line << ": " << outcome.parse_error;
    }
  }
  EXPECT_GT(n_options, 400);
  EXPECT_LT(n_refused, 80);
}

// As those of a request.
TEST(ForeignOptions, VariablesOfTheTemplateAreChecked) {
  for (const char* command : {"serve", "chat", "run"}) {
    CommandLine line(command);
    const auto error = [&](const std::string& value) {
      return line.Take({"--chat-template-kwargs", value}).parse_error;
    };
    EXPECT_EQ(error(R"({"enable_thinking": false})"), "");
    EXPECT_THAT(error(R"({"messages": []})"), StartsWith("--chat-template-kwargs: messages"));
    EXPECT_THAT(error(R"({"add_generation_prompt": false})"),
                StartsWith("--chat-template-kwargs: add_generation_prompt"));
    EXPECT_THAT(error("[1]"), HasSubstr("object"));
  }
}

// A line as it stands in many scripts.
TEST(ForeignOptions, AScriptForLlamaServerStartsServe) {
  CommandLine serve("serve");
  const Outcome outcome = serve.Take({"-c",
                                      "4096",
                                      "-ngl",
                                      "99",
                                      "--jinja",
                                      "-cb",
                                      "--mlock",
                                      "--no-mmap",
                                      "-t",
                                      "-1",
                                      "-np",
                                      "-1",
                                      "--no-warmup",
                                      "--log-disable",
                                      "--log-file",
                                      "x.log",
                                      "-fa",
                                      "-b",
                                      "2048",
                                      "-ub",
                                      "512",
                                      "--numa",
                                      "distribute",
                                      "-sm",
                                      "layer",
                                      "-ts",
                                      "3,1",
                                      "-mg",
                                      "0",
                                      "-dev",
                                      "none",
                                      "-nkvo",
                                      "-ot",
                                      "exps=CPU",
                                      "--no-perf",
                                      "--props",
                                      "--metrics",
                                      "--slots",
                                      "--threads-http",
                                      "-1",
                                      "--sse-ping-interval",
                                      "-1",
                                      "--host",
                                      "0.0.0.0",
                                      "--port",
                                      "8081",
                                      "--cache-reuse",
                                      "256",
                                      "-sps",
                                      "0.5",
                                      "--temp",
                                      "0.7"});
  EXPECT_EQ(outcome.refusal, "");
  EXPECT_EQ(outcome.parse_error, "");
  EXPECT_THAT(outcome.warnings,
              ElementsAre("-ub is called --batch-size here",
                          "-ngl, --jinja, -cb, --mlock, --no-mmap, --no-warmup, --log-disable, --log-file, "
                          "-fa, --numa, -sm, -ts, -mg, -dev, -nkvo, -ot, --no-perf, --props, --cache-reuse "
                          "and -sps have no effect here"));
  for (const char* name : {"run", "chat", "batch"}) {
    CommandLine command(name);
    const Outcome other = command.Take({"-ngl", "99", "--mlock", "-t", "-1", "--no-warmup", "-fa", "on"});
    EXPECT_EQ(other.refusal, "") << name;
    EXPECT_THAT(other.warnings, ElementsAre("-ngl, --mlock, --no-warmup and -fa have no effect here"));
  }
}

}  // namespace
}  // namespace longspec::cli
