// SPDX-License-Identifier: Apache-2.0
//
// Options are parsed into the library's own, with its defaults, and mistakes are said in few words.
#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "base/testing/source_path.h"
#include "cli/command.h"
#include "draft/portfolio_drafter.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"

namespace longspec::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Parsed {
  ModelOptions model;
  SamplingOptions sampling;
  SpeculationOptions speculation;
  GenerationRequest request;
  OutputFlags output;
  std::string error;  // empty: parsed
};

Parsed Parse(std::vector<std::string> args) {
  Parsed parsed;
  CLI::App app;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  AddModelOptions(app, &parsed.model);
  AddSamplingOptions(app, &parsed.sampling);
  AddSpeculationOptions(app, &parsed.speculation);
  AddLimitOptions(app, &parsed.request);
  AddOutputOptions(app, &parsed.output);
  RefuseEmptyNumbers(app);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError& error) {
    parsed.error = error.what();
  }
  return parsed;
}

// The options of a draft model arrive where drafters look for them.
TEST(Options, DraftModels) {
  const Parsed parsed = Parse({"-m", "x.gguf", "--spec-type", "longspec", "--spec-draft-model", "draft",
                               "--spec-draft-weights", "bf16", "--spec-tree", "4,16"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.speculation.draft_model, "draft");
  EXPECT_EQ(parsed.speculation.draft_weights, "bf16");
  EXPECT_EQ(parsed.speculation.tree, "4,16");
}

// An unset variable of a script asks for nothing, not for 0 or for no file.
TEST(Options, EmptyNumbersAndFilesAreRefused) {
  for (const std::string option : {"--top-k", "--ctx-size", "--temp", "--spec-draft-n-max",
                                   "--spec-ppm-min-prob", "--weights-cache", "--kv-offload"}) {
    EXPECT_THAT(Parse({"-m", "x.gguf", option, ""}).error, HasSubstr(option)) << option;
  }
  EXPECT_EQ(Parse({"-m", "x.gguf", "--top-k", ""}).error,
            "--top-k: is empty: give a value, or leave the option out");
  EXPECT_EQ(Parse({"-m", "x.gguf", "--samplers", ""}).error, "");
}

TEST(Options, RangesAreSaidInFewWords) {
  const std::pair<std::string, std::string> wrong[] = {
      {"--temp", "-1"},          {"--top-p", "2"},        {"--ctx-size", "-1"},
      {"--repeat-penalty", "0"}, {"--rope-scale", "nan"}, {"--predict", "99999999999"},
      {"--batch-size", "70000"}, {"--cache-ram", "x"}};
  for (const auto& [option, value] : wrong) {
    const std::string error = Parse({"-m", "x.gguf", option, value}).error;
    EXPECT_THAT(error, HasSubstr(option + ": must be ")) << option;
    EXPECT_THAT(error, HasSubstr("not " + value)) << option;
    EXPECT_LT(error.size(), 80U) << error;
  }
  EXPECT_EQ(Parse({"-m", "x.gguf", "--temp", "-1"}).error, "--temp: must be 0 or more, not -1");
}

TEST(Options, PartialRefreshIsANumberOrThePapers) {
  const auto partial = [](const std::string& refresh) {
    return Parse({"-m", "x.gguf", "--partial-verification", "--partial-refresh", refresh});
  };
  EXPECT_EQ(partial("80").error, "");
  EXPECT_EQ(partial("80").request.partial_verification.refresh, 80);
  EXPECT_EQ(partial("paper").error, "");
  EXPECT_EQ(partial("paper").request.partial_verification.refresh, 0);
  for (const char* wrong : {"papers", "0", "-3", "8x"}) {
    EXPECT_THAT(partial(wrong).error, HasSubstr("must be 1 or more, or paper")) << wrong;
  }
  EXPECT_EQ(Parse({"-m", "x.gguf"}).request.partial_verification.reduce, "mean");
  EXPECT_EQ(Parse({"-m", "x.gguf", "--partial-verification", "--partial-refresh", "paper", "--partial-reduce",
                   "max"})
                .request.partial_verification.reduce,
            "max");
  EXPECT_EQ(Parse({"-m", "x.gguf"}).request.partial_verification.refresh,
            PartialVerificationOptions().refresh);
}

// Options of what is not asked for.
TEST(Options, OfAPartAndOfAFileNeedThese) {
  for (const char* option : {"--partial-budget", "--partial-sink", "--partial-window", "--partial-refresh"}) {
    EXPECT_EQ(Parse({"-m", "x", option, "64"}).error,
              std::string(option) + " requires --partial-verification");
    EXPECT_EQ(Parse({"-m", "x", option, "64", "--partial-verification"}).error, "");
  }
  EXPECT_EQ(Parse({"-m", "x", "--partial-score", "mean"}).error,
            "--partial-score requires --partial-verification");
  EXPECT_EQ(Parse({"-m", "x", "--partial-reduce", "max"}).error,
            "--partial-reduce requires --partial-verification");
  EXPECT_EQ(Parse({"-m", "x", "--kv-memory", "64"}).error, "--kv-memory requires --kv-offload");
  EXPECT_EQ(Parse({"-m", "x", "--kv-offload-anyway"}).error, "--kv-offload-anyway requires --kv-offload");
}

TEST(Options, DefaultsAreThoseOfTheLibrary) {
  const Parsed parsed = Parse({"-m", "x.gguf"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.model.path, "x.gguf");
  EXPECT_EQ(parsed.model.batch_size, ModelOptions().batch_size);
  EXPECT_EQ(parsed.sampling.temperature, SamplingOptions().temperature);
  EXPECT_EQ(parsed.speculation.type, SpeculationOptions().type);
  EXPECT_EQ(parsed.request.n_predict, -1);
  EXPECT_FALSE(parsed.sampling.seed.has_value());
}

TEST(Options, EveryGroupIsBound) {
  const Parsed parsed = Parse({"-m",
                               "x.gguf",
                               "-c",
                               "4096",
                               "-b",
                               "64",
                               "-t",
                               "3",
                               "--cache-type-k",
                               "f32",
                               "--cache-type-v",
                               "bf16",
                               "--device",
                               "cuda:1",
                               "--kernels",
                               "avx2",
                               "--rope-scaling",
                               "yarn",
                               "--rope-scale",
                               "4",
                               "--rope-freq-base",
                               "50000",
                               "--yarn-orig-ctx",
                               "2048",
                               "--yarn-ext-factor",
                               "0.5",
                               "--yarn-attn-factor",
                               "1.5",
                               "--yarn-beta-fast",
                               "30",
                               "--yarn-beta-slow",
                               "2",
                               "-s",
                               "42",
                               "--temperature",
                               "0.5",
                               "--top-k",
                               "10",
                               "--top-p",
                               "0.8",
                               "--min-p",
                               "0.1",
                               "--repeat-last-n",
                               "-1",
                               "--repeat-penalty",
                               "1.1",
                               "--presence-penalty",
                               "0.2",
                               "--frequency-penalty",
                               "0.3",
                               "--logit-bias",
                               "12+1.5",
                               "--logit-bias",
                               "7-inf",
                               "--spec-type",
                               "ngram,suffix,ppm,recycling,magicdec",
                               "--spec-draft-n-max",
                               "5",
                               "--spec-draft-n-min",
                               "2",
                               "--spec-ngram-max",
                               "6",
                               "--spec-ngram-min",
                               "3",
                               "--spec-ngram-rule",
                               "vllm",
                               "--spec-tree",
                               "4",
                               "--spec-suffix-max-depth",
                               "30",
                               "--spec-suffix-factor",
                               "1.5",
                               "--spec-suffix-min-prob",
                               "0.25",
                               "--spec-ppm-min-prob",
                               "0.5",
                               "--spec-corpus",
                               "a.corpus",
                               "--spec-recycling-file",
                               "a.table",
                               "--spec-magicdec-sink",
                               "2",
                               "--spec-magicdec-window",
                               "100",
                               "-n",
                               "9",
                               "-r",
                               "User:",
                               "--stop",
                               "[end]",
                               "--ignore-eos",
                               "-v",
                               "--no-progress"});
  ASSERT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.model.ctx_size, 4096);
  EXPECT_EQ(parsed.model.batch_size, 64);
  EXPECT_EQ(parsed.model.threads, 3);
  EXPECT_EQ(parsed.model.cache_type_k, CacheType::kF32);
  EXPECT_EQ(parsed.model.cache_type_v, CacheType::kBF16);
  EXPECT_EQ(parsed.model.device, "cuda:1");
  EXPECT_EQ(parsed.model.kernels, "avx2");
  EXPECT_EQ(parsed.model.rope.scaling, RopeOptions::Scaling::kYarn);
  EXPECT_EQ(parsed.model.rope.scale, 4.0F);
  EXPECT_EQ(parsed.model.rope.freq_base, 50000.0F);
  EXPECT_EQ(parsed.model.rope.yarn_orig_ctx, 2048);
  EXPECT_EQ(parsed.model.rope.yarn_ext_factor, 0.5F);
  EXPECT_EQ(parsed.model.rope.yarn_attn_factor, 1.5F);
  EXPECT_EQ(parsed.model.rope.yarn_beta_fast, 30.0F);
  EXPECT_EQ(parsed.model.rope.yarn_beta_slow, 2.0F);
  EXPECT_EQ(parsed.sampling.seed, 42U);
  EXPECT_EQ(parsed.sampling.temperature, 0.5F);
  EXPECT_EQ(parsed.sampling.top_k, 10);
  EXPECT_EQ(parsed.sampling.top_p, 0.8F);
  EXPECT_EQ(parsed.sampling.min_p, 0.1F);
  EXPECT_EQ(parsed.sampling.repeat_last_n, -1);
  EXPECT_EQ(parsed.sampling.repeat_penalty, 1.1F);
  EXPECT_EQ(parsed.sampling.presence_penalty, 0.2F);
  EXPECT_EQ(parsed.sampling.frequency_penalty, 0.3F);
  EXPECT_THAT(parsed.sampling.logit_bias, ElementsAre(std::pair(12, 1.5F), std::pair(7, -INFINITY)));
  EXPECT_EQ(parsed.speculation.type, "ngram,suffix,ppm,recycling,magicdec");
  EXPECT_EQ(parsed.speculation.draft_n_max, 5);
  EXPECT_EQ(parsed.speculation.draft_n_min, 2);
  EXPECT_EQ(parsed.speculation.ngram.max, 6);
  EXPECT_EQ(parsed.speculation.ngram.min, 3);
  EXPECT_EQ(parsed.speculation.ngram.rule, "vllm");
  EXPECT_EQ(parsed.speculation.tree, "4");
  EXPECT_EQ(parsed.speculation.suffix.max_depth, 30);
  EXPECT_EQ(parsed.speculation.suffix.factor, 1.5F);
  EXPECT_EQ(parsed.speculation.suffix.min_prob, 0.25F);
  EXPECT_EQ(parsed.speculation.ppm.min_prob, 0.5F);
  EXPECT_EQ(parsed.speculation.suffix.corpus, "a.corpus");
  EXPECT_EQ(parsed.speculation.recycling.file, "a.table");
  EXPECT_EQ(parsed.speculation.magicdec.sink, 2);
  EXPECT_EQ(parsed.speculation.magicdec.window, 100);
  EXPECT_EQ(parsed.request.n_predict, 9);
  EXPECT_THAT(parsed.request.stop, ElementsAre("User:", "[end]"));
  EXPECT_TRUE(parsed.request.ignore_eos);
  EXPECT_TRUE(parsed.output.verbose);
  EXPECT_TRUE(parsed.output.no_progress);
}

// Nothing of a flag, which is off unless it is named.
std::string Shown(bool) { return ""; }
template <typename T>
std::string Shown(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// A value that is not the default.
int Other(int value) { return value + 1; }
float Other(float value) { return value / 2; }
bool Other(bool value) { return !value; }
std::string Other(const std::string& value) { return value + "x"; }

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

// A command line on which an option has an effect: of a drafter that reads it, with what else it needs.
std::vector<std::string> LineFor(const ReadOption& read) {
  std::vector<std::string> line = {"-m", "x", "--spec-type", Split(read.readers, ',')[0]};
  const std::string_view name = read.option->name();
  if (name == "--spec-draft-sink") line.insert(line.end(), {"--spec-draft-window", "64"});
  if (name == "--spec-extend-every" || name == "--spec-extend-from") line.emplace_back("--spec-extend");
  return line;
}

TEST(Options, ThoseOfDraftersAreParsed) {
  for (const ReadOption& read : DrafterOptions()) {
    for (const std::string& flag : Split(std::string(read.option->flags), ',')) {
      const auto expect = [&](auto member) {
        const SpeculationOptions usual;
        const auto value = Other(member.In(usual));
        std::vector<std::string> arguments = LineFor(read);
        arguments.push_back(flag);
        if (!std::is_same_v<decltype(member), OptionPlace<bool>>) arguments.push_back(Shown(value));
        const Parsed parsed = Parse(arguments);
        EXPECT_EQ(parsed.error, "") << flag;
        EXPECT_EQ(member.In(parsed.speculation), value) << flag;
      };
      std::visit(expect, read.option->member);
    }
  }
}

TEST(Options, HelpHasEveryDrafterAndItsOptions) {
  CLI::App app;
  SpeculationOptions options;
  AddSpeculationOptions(app, &options);
  const std::string help = app.help();
  for (const DrafterEntry* entry : Drafters()) {
    EXPECT_THAT(help, HasSubstr(std::string(entry->summary))) << entry->name;
    for (const std::string_view alias : entry->aliases) EXPECT_THAT(help, HasSubstr(std::string(alias)));
  }
  for (const ReadOption& read : DrafterOptions()) {
    const size_t begin = help.find("  " + std::string(read.option->flags) + " ");
    ASSERT_NE(begin, std::string::npos) << read.option->flags;
    std::string own = help.substr(begin, help.find("\n  --", begin) - begin);
    std::ranges::replace(own, '\n', ' ');
    EXPECT_THAT(own, HasSubstr(read.readers + ": " + std::string(read.option->help)));
    const auto expect = [&](auto member) {
      const std::string value = Shown(member.In(SpeculationOptions()));
      if (value.empty()) return;
      EXPECT_THAT(own, HasSubstr("=" + value + " ")) << read.option->flags;
    };
    std::visit(expect, read.option->member);
  }
}

// What the tables "option, default" of docs/cli.md have as defaults; of options of several commands the
// first. A row of several options has their defaults in the same order.
std::map<std::string, std::string> DocumentedDefaults() {
  std::map<std::string, std::string> defaults;
  std::ifstream in(testing::SourcePath("docs/cli.md"));
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    inside = line.starts_with("| option | default |") || (inside && line.starts_with("|"));
    const std::vector<std::string> cells = Split(line, '|');
    if (!inside || cells.size() < 3) continue;
    const std::vector<std::string> values = Split(cells[2], ',');
    const std::vector<std::string> quoted = Split(cells[1], '`');  // every other part is between backticks
    for (size_t i = 1, n = 0; i < quoted.size(); i += 2, ++n) {
      std::string value = n < values.size() ? values[n] : "";
      std::erase(value, ' ');
      for (const std::string& word : Split(quoted[i], ' ')) {
        if (word.starts_with("--")) defaults.emplace(word.substr(0, word.find(',')), value);
      }
    }
  }
  return defaults;
}

TEST(Options, DocumentsSayWhatDraftersRead) {
  const auto documented = DocumentedDefaults();
  EXPECT_EQ(documented.at("--predict"), "-1");
  for (const ReadOption& read : DrafterOptions()) {
    const std::string name(read.option->name());
    ASSERT_TRUE(documented.contains(name)) << name << " is not in docs/cli.md";
    const auto expect = [&](auto member) {
      const std::string value = Shown(member.In(SpeculationOptions()));
      if (value.empty()) return;
      EXPECT_EQ(documented.at(name), value) << name;
    };
    std::visit(expect, read.option->member);
  }
  // And nothing that is no longer there.
  CLI::App app;
  SpeculationOptions options;
  AddSpeculationOptions(app, &options);
  for (const auto& [name, value] : documented) {
    if (!name.starts_with("--spec-")) continue;
    EXPECT_NE(app.get_option_no_throw(name), nullptr) << name;
  }
}

// Given is given, also where it is what is so by default.
TEST(Options, WhatHasNoEffectIsRefusedByName) {
  const auto error = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"-m", "x"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Parse(arguments).error;
  };
  int n_refused = 0;
  for (const DrafterEntry* entry : Drafters()) {
    for (const DrafterOption* option : SpeculationOptionTable()) {
      SpeculationOptions options = {.type = std::string(entry->name)};
      const bool is_switch = option->name() == "--spec-dice";
      std::vector<std::string> line = {"--spec-type", options.type, std::string(option->name())};
      const auto add_default = [&](auto member) {
        if (is_switch) return line.emplace_back("on"), void();
        if constexpr (std::is_same_v<decltype(member), OptionPlace<bool>>) return;
        line.push_back(Shown(member.In(SpeculationOptions())));
        if constexpr (std::is_same_v<decltype(member), OptionPlace<std::string>>) {
          if (line.back().empty())
            member.In(options) = line.back() = "4";  // some are read where they are given
        }
      };
      std::visit(add_default, option->member);
      const std::string said = error(line);
      const bool of_policy = option->name() == "--spec-adaptive-n-max" && !IsPortfolio(options.type);
      if (Reads(options, *option) && !of_policy) {
        EXPECT_EQ(said, "") << options.type << " " << option->name();
        continue;
      }
      EXPECT_THAT(said, ::testing::StartsWith(std::string(option->name()) + ": has no effect"))
          << options.type << " " << option->name();
      ++n_refused;
    }
  }
  EXPECT_GT(n_refused, 250);
  EXPECT_EQ(error({"--spec-type", "longspec", "--spec-extend"}),
            "--spec-extend: has no effect with --spec-type longspec; it is for eagle, eagle3 and lm");
  EXPECT_EQ(error({"--spec-adaptive-n-max", "9", "--spec-draft-n-max", "8"}),
            "--spec-draft-n-max: has no effect beside --spec-adaptive-n-max");
  // A drafter that there is not is for others to refuse.
  EXPECT_EQ(error({"--spec-type", "hawk", "--spec-extend"}), "");
}

TEST(Options, NamesOfPapersAreSettingsWhereNothingElseIsGiven) {
  const auto parse = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"-m", "x", "--spec-type", "pld"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Parsed parsed = Parse(arguments);
    EXPECT_EQ(parsed.error, "");
    return parsed.speculation;
  };
  EXPECT_EQ(parse({}), Settled({.type = "pld"}));
  EXPECT_EQ(parse({"--spec-draft-n-max", "8"}).draft_n_max, 8);  // the default, and given
  EXPECT_EQ(parse({"--spec-ngram-max", "4"}).ngram.max, 4);
  EXPECT_EQ(parse({"--spec-ngram-max", "4"}).draft_n_max, 10);
}

// llama.cpp's bound of all drafts is that of those that have one here.
TEST(Options, LeastChanceIsOfWhoReadsIt) {
  const auto parse = [](const char* type) {
    return Parse({"-m", "x", "--spec-type", type, "--spec-draft-p-min", "0.5"});
  };
  EXPECT_EQ(parse("auto").speculation.suffix.min_prob, 0.5F);
  EXPECT_EQ(parse("auto").speculation.ppm.min_prob, 0.5F);
  EXPECT_EQ(parse("suffix").speculation.suffix.min_prob, 0.5F);
  EXPECT_EQ(parse("suffix").speculation.ppm.min_prob, SpeculationOptions().ppm.min_prob);
  EXPECT_EQ(parse("draft-simple").error, "");
  EXPECT_EQ(
      Parse({"-m", "x", "--draft-p-min", "0.5", "--spec-ppm-min-prob", "0.25"}).speculation.ppm.min_prob,
      0.25F);
}

TEST(Options, PolicyAndItsLimits) {
  const Parsed plain = Parse({"-m", "x"});
  EXPECT_EQ(plain.speculation.policy, "");
  EXPECT_EQ(plain.speculation.adaptive_n_max, SpeculationOptions().adaptive_n_max);
  EXPECT_TRUE(plain.model.calibration_cache);
  const Parsed fixed =
      Parse({"-m", "x", "--spec-policy", "fixed", "--spec-draft-n-max", "5", "--no-calibration-cache"});
  EXPECT_EQ(fixed.error, "");
  EXPECT_EQ(fixed.speculation.policy, "fixed");
  EXPECT_EQ(fixed.speculation.draft_n_max, 5);
  EXPECT_FALSE(fixed.model.calibration_cache);
  const Parsed adaptive = Parse({"-m", "x", "--spec-adaptive-n-max", "20"});
  EXPECT_EQ(adaptive.speculation.adaptive_n_max, 20);
  EXPECT_EQ(adaptive.speculation.draft_n_max, SpeculationOptions().draft_n_max);
  EXPECT_THAT(Parse({"-m", "x", "--spec-policy", "fixed", "--spec-adaptive-n-max", "20"}).error,
              HasSubstr("has no effect without --spec-policy adaptive"));
  // Whoever limits drafts limits those of the adaptive policy too.
  EXPECT_EQ(Parse({"-m", "x", "--spec-draft-n-max", "5"}).speculation.adaptive_n_max, 5);
}

TEST(Options, WarningsOfALoadAreSaidOnce) {
  EXPECT_EQ(Parse({"-m", "x"}).model.weights_cache, "");
  const Parsed parsed = Parse({"-m", "x", "--weights-cache", "some/folder"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.model.weights_cache, "some/folder");
  ::testing::internal::CaptureStderr();
  for (const char* warning : {"disk full", "disk full", "folder gone"}) parsed.model.on_warning(warning);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "longspec: warning: disk full\nlongspec: warning: folder gone\n");
}

TEST(Options, TheLastOfARepeatedOptionCounts) {
  EXPECT_EQ(Parse({"-m", "a", "-n", "1", "-n", "2"}).request.n_predict, 2);
}

TEST(Options, SeedsAreUnsignedOrFresh) {
  EXPECT_EQ(Parse({"-m", "a", "-s", "18446744073709551615"}).sampling.seed, 18446744073709551615ULL);
  EXPECT_FALSE(Parse({"-m", "a", "-s", "5", "-s", "-1"}).sampling.seed.has_value());
  for (const char* bad : {"x", "1.5", "18446744073709551616", "", "7 "}) {
    EXPECT_THAT(Parse({"-m", "a", "-s", bad}).error, HasSubstr("--seed")) << bad;
  }
}

TEST(Options, CacheTypesAreNamedAsInLlamaCpp) {
  const std::pair<const char*, CacheType> types[] = {
      {"f32", CacheType::kF32},   {"f16", CacheType::kF16},   {"bf16", CacheType::kBF16},
      {"q8_0", CacheType::kQ8_0}, {"q4_0", CacheType::kQ4_0}, {"bf16-amx", CacheType::kBF16Amx},
      {"i8", CacheType::kI8}};
  for (const auto& [name, type] : types) {
    const Parsed parsed = Parse({"-m", "a", "--cache-type-k", name, "--cache-type-v", name});
    EXPECT_EQ(parsed.error, "");
    EXPECT_EQ(parsed.model.cache_type_k, type) << name;
    EXPECT_EQ(parsed.model.cache_type_v, type) << name;
  }
  const std::string error = Parse({"-m", "a", "--cache-type-v", "q5_1"}).error;
  EXPECT_THAT(error, HasSubstr("--cache-type-v"));
  for (const auto& [name, type] : types) EXPECT_THAT(error, HasSubstr(name));
}

TEST(Options, AWarningOfLoadingIsSaidOnceByAllCopies) {
  const Parsed parsed = Parse({"-m", "a"});
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    const ModelOptions copy = parsed.model;
    copy.on_warning("cannot be kept");
  }
  parsed.model.on_warning("something else");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "longspec: warning: cannot be kept\nlongspec: warning: something else\n");
}

TEST(Options, Bf16WeightsHaveThreeArithmetics) {
  EXPECT_EQ(Parse({"-m", "a"}).model.bf16_weights, Bf16Arithmetic::kF32);
  EXPECT_EQ(Parse({"-m", "a", "--bf16-weights", "bf16"}).model.bf16_weights, Bf16Arithmetic::kBF16);
  EXPECT_EQ(Parse({"-m", "a", "--bf16-weights", "bf16-amx"}).model.bf16_weights, Bf16Arithmetic::kBF16Amx);
  EXPECT_THAT(Parse({"-m", "a", "--bf16-weights", "f16"}).error, HasSubstr("--bf16-weights"));
}

// What --samplers leaves out is off, wherever it stands among the options.
TEST(Options, SamplersThatAreLeftOutAreOff) {
  const Parsed kept =
      Parse({"-m", "a", "--samplers", std::string(kSamplers), "--top-k", "7", "--repeat-penalty", "1.5"});
  EXPECT_EQ(kept.error, "");
  EXPECT_EQ(kept.sampling.top_k, 7);
  EXPECT_EQ(kept.sampling.repeat_penalty, 1.5F);
  EXPECT_EQ(kept.sampling.top_p, SamplingOptions().top_p);
  EXPECT_EQ(kept.sampling.temperature, SamplingOptions().temperature);
  const Parsed some = Parse({"-m", "a", "--samplers", "top_k;temp", "--top-p", "0.5", "--temp", "0.3"});
  EXPECT_EQ(some.error, "");
  EXPECT_EQ(some.sampling.top_k, SamplingOptions().top_k);
  EXPECT_EQ(some.sampling.top_p, 1.0F);
  EXPECT_EQ(some.sampling.min_p, 0.0F);
  EXPECT_EQ(some.sampling.temperature, 0.3F);
  EXPECT_FALSE(some.sampling.infill);
  EXPECT_TRUE(Parse({"-m", "a", "--samplers", "top_k;infill"}).sampling.infill);
  const Parsed none = Parse({"-m", "a", "--samplers", "", "--repeat-penalty", "2", "--presence-penalty", "1",
                             "--frequency-penalty", "1"});
  EXPECT_EQ(none.sampling.top_k, 0);
  EXPECT_EQ(none.sampling.repeat_penalty, 1.0F);
  EXPECT_EQ(none.sampling.presence_penalty, 0.0F);
  EXPECT_EQ(none.sampling.frequency_penalty, 0.0F);
  EXPECT_EQ(none.sampling.temperature, 1.0F);
  EXPECT_THAT(Parse({"-m", "a", "--samplers", "top_k;best_of"}).error,
              AllOf(HasSubstr("best_of"), HasSubstr("--samplers"), HasSubstr(kAllSamplers)));
}

TEST(ApplySamplers, SaysWhatIsNotDone) {
  SamplingOptions options;
  EXPECT_THAT(*ApplySamplers(std::string(kSamplers), &options), ::testing::IsEmpty());
  EXPECT_THAT(*ApplySamplers("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", &options),
              ElementsAre("--samplers: left out, not here: dry, top_n_sigma, typ_p, xtc"));
  EXPECT_THAT(*ApplySamplers("temperature;top-k", &options),
              ElementsAre(HasSubstr("in the order penalties;top_k")));
}

TEST(Options, BadValuesNameTheOption) {
  const std::vector<std::vector<std::string>> cases = {
      {"--ctx-size", "-1"},       {"--ctx-size", "many"},       {"--batch-size", "0"}, {"--threads", "-2"},
      {"--cache-type-k", "q9_0"}, {"--rope-scaling", "spiral"}, {"--temp", "hot"},     {"--temp", "-1"},
      {"--top-p", "1.5"},         {"--min-p", "-0.1"},          {"--predict", "-2"},   {"--logit-bias", "x"},
      {"--repeat-penalty", "0"},  {"--repeat-last-n", "-2"},    {"--unknown", "1"},
  };
  for (const auto& args : cases) {
    const Parsed parsed = Parse({"-m", "a", args[0], args[1]});
    EXPECT_THAT(parsed.error, HasSubstr(args[0])) << args[1];
  }
  EXPECT_THAT(Parse({"-m", ""}).error, HasSubstr("--model"));
}

TEST(ParseLogitBias, TokenAndSignedBias) {
  EXPECT_EQ(*ParseLogitBias("15043+1.5"), std::pair(15043, 1.5F));
  EXPECT_EQ(*ParseLogitBias("0-2"), std::pair(0, -2.0F));
  EXPECT_EQ(ParseLogitBias("3-inf")->second, -INFINITY);
  for (const char* bad : {"", "5", "+1", "5+", "a+1", "5+b", "5 +1", "99999999999+1", "5+1x"}) {
    EXPECT_FALSE(ParseLogitBias(bad).ok()) << bad;
  }
}

TEST(Commands, EveryCommandCanBeSetUpAndShowsItsOptions) {
  for (const Command& command : Commands()) {
    CLI::App app(command.description, command.name);
    EXPECT_TRUE(command.setup(app)) << command.name;
    if (command.name == std::string("train")) continue;  // hands every argument on to longspec-train
    EXPECT_THAT(app.help(), HasSubstr(command.name == std::string("convert") ? "--type" : "--model"))
        << command.name;
  }
}

}  // namespace
}  // namespace longspec::cli
