// SPDX-License-Identifier: Apache-2.0
//
// Of each pair of a drafter and an option: it is read, as the table says, or refused by its name.
#include "draft_model/option_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>

#include "draft/portfolio_drafter.h"

namespace longspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Another value than the default, of the option's range.
void Change(const DrafterOption& option, SpeculationOptions* options) {
  const auto change = [&](auto member) {
    auto& value = member.In(*options);
    using T = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::string>) {
      value = option.name() == "--spec-tree" ? "4" : "x";
    } else if constexpr (std::is_same_v<T, bool>) {
      value = !value;
    } else if constexpr (std::is_same_v<T, int>) {
      value += 16;
    } else {
      value /= 2;
    }
  };
  std::visit(change, option.member);
  if (option.name() == "--spec-ngram-rule") options->ngram.rule = "vllm";
  if (option.name() == "--spec-partial-score") options->partial.score = "mean";
  if (option.name() == "--spec-partial-inner") options->partial.inner = "suffix";
  if (option.name() == "--spec-draft-weights") options->draft_weights = "bf16";
  if (option.name() == "--spec-policy") options->policy = IsPortfolio(options->type) ? "fixed" : "adaptive";
  if (option.name() == "--spec-draft-n-min") options->draft_n_min = 4;
}

// What it needs to be read at all by whoever reads it.
void Complete(const DrafterOption& option, SpeculationOptions* options) {
  if (option.name() == "--spec-extend-every" || option.name() == "--spec-extend-from")
    options->spec_extend.enabled = true;
  if (option.name() == "--spec-draft-sink") options->lm.window = 100;
  if (option.name() == "--spec-ngram-min") options->ngram.max = 20;
}

bool Declares(const DrafterEntry& entry, const DrafterOption& option) {
  const auto is_it = [&](const DrafterOption& own) { return own.flags == option.flags; };
  for (const SharedOption& shared : SharedOptions()) {
    if (is_it(shared.option)) return entry.*shared.read_by;
  }
  return std::ranges::any_of(entry.options, is_it);
}

SpeculationOptions Alone(const DrafterEntry& entry) {
  SpeculationOptions options = {.type = std::string(entry.name)};
  if (entry.reads != nullptr) options.draft_model = "x";
  return options;
}

TEST(OptionUse, EachPairOfADrafterAndAnOptionIsReadOrRefusedByName) {
  int n_read = 0, n_refused = 0;
  for (const DrafterEntry* entry : Drafters()) {
    if (entry->parts != nullptr) continue;  // below
    for (const DrafterOption* option : SpeculationOptionTable()) {
      SCOPED_TRACE(std::string(entry->name) + " " + std::string(option->name()));
      SpeculationOptions options = Alone(*entry);
      EXPECT_EQ(CheckDrafter(options).message(), "");
      if (option->name() == "--spec-draft-model" && entry->reads != nullptr) continue;  // is there
      Change(*option, &options);
      if (Declares(*entry, *option)) {
        Complete(*option, &options);
        EXPECT_EQ(CheckDrafter(options).message(), "");
        ++n_read;
        continue;
      }
      const Status status = CheckDrafter(options);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(),
                  AllOf(StartsWith(std::string(option->name()) + ": has no effect with --spec-type "),
                        HasSubstr("; it is for "), Not(HasSubstr("\n"))));
      ++n_refused;
    }
  }
  EXPECT_GT(n_read, 120);
  EXPECT_GT(n_refused, 250);
}

// A drafter's own word: what it is made with says whether it uses dice.
TEST(OptionUse, DiceAreReadByWhoUsesThem) {
  for (const DrafterEntry* entry : Drafters()) {
    if (entry->reads != nullptr || entry->parts != nullptr) continue;
    const auto drafter = MakeDrafter({.type = std::string(entry->name)});
    if (!drafter.ok()) continue;  // it needs a target
    EXPECT_EQ((*drafter)->uses_dice(), entry->reads_dice) << entry->name;
  }
}

TEST(OptionUse, ListsAndAutoReadWhatTheirMembersDo) {
  const auto message = [](const SpeculationOptions& options) { return CheckDrafter(options).message(); };
  EXPECT_EQ(message({.type = "ngram,suffix", .ngram = {.max = 6}, .suffix = {.factor = 2}}), "");
  EXPECT_EQ(
      message(
          {.type = "auto", .tree = "3", .suffix = {.factor = 2}, .ppm = {.min_prob = 0.1F}, .dice = false}),
      "");
  EXPECT_EQ(message({.type = "auto", .recycling = {.file = "f"}}), "");  // which makes it a member
  EXPECT_EQ(message({.type = "auto", .ngram = {.max = 6}}),
            "--spec-ngram-max: has no effect with --spec-type auto; it is for ngram");
  EXPECT_EQ(message({.type = "ngram,suffix", .magicdec = {.window = 6}}),
            "--spec-magicdec-window: has no effect with --spec-type ngram,suffix; it is for magicdec");
  EXPECT_EQ(
      message({.type = "ngram,grammar", .dice = false}),
      "--spec-dice: has no effect with --spec-type ngram,grammar; it is for all but none, ngram, replay and "
      "grammar");
  // A draft model that is not opened may be of any kind.
  EXPECT_EQ(message({.type = "auto", .draft_model = "x", .lm = {.window = 100}}), "");
  EXPECT_EQ(message({.type = "auto", .draft_model = "x", .spec_extend = {.enabled = true}}), "");
  EXPECT_THAT(message({.type = "ppm,longspec", .draft_model = "x", .spec_extend = {.enabled = true}}),
              HasSubstr("it is for eagle, eagle3 and lm"));
}

TEST(OptionUse, ADrafterInsideAnotherReadsItsOwn) {
  const auto message = [](SpeculationOptions options) {
    options.type = "partial";
    return CheckDrafter(options).message();
  };
  EXPECT_EQ(message({.tree = "4", .dice = false}), "");
  EXPECT_EQ(message({.ppm = {.min_prob = 0.2F}}), "");
  EXPECT_EQ(message({.suffix = {.factor = 2}, .partial = {.inner = "suffix"}}), "");
  EXPECT_THAT(message({.suffix = {.factor = 2}}), StartsWith("--spec-suffix-factor: has no effect"));
  EXPECT_EQ(message({.partial = {.inner = "lm"}, .draft_model = "x", .lm = {.window = 64}}), "");
  EXPECT_THAT(message({.draft_model = "x"}), StartsWith("--spec-draft-model: has no effect"));
  // Nobody shows it what the target looks at.
  EXPECT_THAT(message({.partial = {.inner = "lm"}, .draft_model = "x", .spec_extend = {.enabled = true}}),
              StartsWith("--spec-extend: has no effect"));
  EXPECT_EQ(message({.partial = {.inner = "none", .inner_n_max = 2}}),
            "--spec-partial-inner-n-max: has no effect without --spec-partial-inner");
}

TEST(OptionUse, OptionsThatNeedOthersSayWhich) {
  const auto message = [](const SpeculationOptions& options) { return CheckDrafter(options).message(); };
  EXPECT_EQ(message({.type = "lm", .draft_model = "x", .lm = {.sink = 2}}),
            "--spec-draft-sink: has no effect without --spec-draft-window");
  for (const char* type : {"lm", "eagle", "eagle3"}) {
    EXPECT_EQ(message({.type = type, .draft_model = "x", .spec_extend = {.every = 2}}),
              "--spec-extend-every: has no effect without --spec-extend");
    EXPECT_EQ(message({.type = type, .draft_model = "x", .spec_extend = {.from = 2}}),
              "--spec-extend-from: has no effect without --spec-extend");
  }
  EXPECT_EQ(message({.type = "ngram", .ngram = {.min = 1, .rule = "hf"}}),
            "--spec-ngram-min: has no effect without --spec-ngram-rule recent or vllm");
  EXPECT_EQ(message({.type = "ngram", .ngram = {.max = 5, .rule = "tgi"}}),
            "--spec-ngram-max: has no effect without a --spec-ngram-rule other than tgi");
}

TEST(OptionUse, WhatOthersReadIsLeftOut) {
  const SpeculationOptions all = {
      .draft_n_max = 5, .ngram = {.max = 6}, .dice = false, .magicdec = {.window = 7}};
  const SpeculationOptions ngram = OnlyRead(all, "ngram");
  EXPECT_EQ(ngram, (SpeculationOptions{.type = "ngram", .draft_n_max = 5, .ngram = {.max = 6}}));
  EXPECT_EQ(OnlyRead(all, "none"), SpeculationOptions{.type = "none"});
  for (const DrafterEntry* entry : Drafters()) {
    SpeculationOptions given = Alone(*entry);
    for (const DrafterOption* option : SpeculationOptionTable()) {
      if (option->name() != "--spec-draft-model") Change(*option, &given);
    }
    given.draft_n_min = 0;
    EXPECT_EQ(CheckUse(OnlyRead(given, entry->name)).message(), "") << entry->name;
  }
}

// --- What papers and other programs call a drafter. ---

TEST(Preset, EachIsItsDrafterWithSettingsThatCount) {
  for (const DrafterEntry* entry : Drafters()) {
    for (const DrafterPreset& preset : entry->presets) {
      SCOPED_TRACE(std::string(preset.name));
      SpeculationOptions options = {.type = std::string(preset.name)};
      const bool needs_model = entry->reads != nullptr || preset.name == "triforce";
      if (needs_model) options.draft_model = "x";
      EXPECT_EQ(CheckDrafter(options).message(), "");
      const SpeculationOptions settled = Settled(options);
      EXPECT_EQ(settled.type, entry->name);
      EXPECT_NE(settled, OnlyRead(options, entry->name));
      EXPECT_EQ(Settled(settled), settled);
      // What is said otherwise counts, and the rest is the preset's.
      options.draft_n_max = 13;
      SpeculationOptions with = settled;
      with.draft_n_max = 13;
      EXPECT_EQ(Settled(options), with);
    }
  }
}

TEST(Preset, OfPromptLookup) {
  const SpeculationOptions pld = Settled({.type = "pld"});
  EXPECT_EQ(pld.type, "ngram");
  EXPECT_EQ(pld.ngram.rule, "pld");
  EXPECT_EQ(pld.ngram.max, 3);
  EXPECT_EQ(pld.draft_n_max, 10);
  EXPECT_EQ(pld.adaptive_n_max, 10);
  const SpeculationOptions hf = Settled({.type = "prompt_lookup"});
  EXPECT_EQ(hf.ngram.rule, "hf");
  EXPECT_EQ(hf.ngram.max, 2);
  EXPECT_EQ(hf.draft_n_max, 10);
  const SpeculationOptions llama = Settled({.type = "ngram-simple"});
  EXPECT_EQ(llama.ngram.rule, "llama");
  EXPECT_EQ(llama.ngram.max, 12);
  EXPECT_EQ(llama.draft_n_max, 48);
  // In a list the settings of a drafter are its own, and that of all stays.
  EXPECT_EQ(CheckDrafter({.type = "pld,suffix"}).message(), "");
  EXPECT_EQ(Settled({.type = "pld,suffix"}).draft_n_max, SpeculationOptions().draft_n_max);
  EXPECT_THAT(CheckDrafter({.type = "pld,suffix", .ngram = {.min = 3}}).message(),
              StartsWith("--spec-ngram-min: has no effect"));
}

TEST(Preset, OfTreesAndTables) {
  EXPECT_EQ(Settled({.type = "tr"}).draft_n_max, 80);
  EXPECT_FALSE(Settled({.type = "token_recycling"}).dice);
  const SpeculationOptions eagle1 = Settled({.type = "eagle1"}), eagle2 = Settled({.type = "eagle2"});
  EXPECT_EQ(std::ranges::count(eagle1.tree, '['), 26);
  EXPECT_EQ(eagle1.draft_n_max, 25);
  EXPECT_EQ(eagle2.tree, "eagle2:10:5:59");
  EXPECT_EQ(eagle2.draft_n_max, 59);
  EXPECT_EQ(Settled({.type = "eagle2", .tree = "chain"}).tree, "chain");
  EXPECT_EQ(Settled({.type = "draft-eagle3"}).type, "eagle3");
  EXPECT_EQ(Settled({.type = "draft-simple"}).draft_n_max, 3);
}

// The paper grows OPT-Trees of 50 nodes.
TEST(Preset, SpecExtendHasThePapersTree) {
  for (const char* type : {"lm", "eagle", "eagle3"}) {
    const SpeculationOptions extended = Settled({.type = type, .spec_extend = {.enabled = true}});
    EXPECT_EQ(extended.tree, "opt:0.7:10");
    EXPECT_EQ(extended.draft_n_max, 50);
    const SpeculationOptions chain =
        Settled({.type = type, .tree = "chain", .spec_extend = {.enabled = true}});
    EXPECT_EQ(chain.tree, "chain");
    EXPECT_EQ(chain.draft_n_max, 8);
    EXPECT_EQ(Settled({.type = type, .draft_n_max = 20, .spec_extend = {.enabled = true}}).draft_n_max, 20);
    EXPECT_EQ(Settled({.type = type}).tree, "");
  }
}

TEST(Preset, TriForceHasASmallModel) {
  const auto message = [](const SpeculationOptions& options) { return CheckDrafter(options).message(); };
  EXPECT_THAT(message({.type = "triforce"}), HasSubstr("needs a draft model; name its file with"));
  EXPECT_EQ(message({.type = "triforce", .draft_model = "x"}), "");
  const SpeculationOptions settled = Settled({.type = "triforce", .draft_model = "x"});
  EXPECT_EQ(settled.partial.inner, "lm");
  EXPECT_EQ(settled.partial.sink + settled.partial.budget, 4096);
  EXPECT_EQ(settled.partial.score, "mean");
  EXPECT_EQ(settled.lm.sink + settled.lm.window + settled.draft_n_max, 256);
  EXPECT_EQ(settled.partial.inner_n_max, 1);
}

TEST(Preset, NamesThatPromisedMoreSayWhatToUse) {
  for (const auto& [name, instead] : {std::pair("streaming", "magicdec"),
                                      {"self_streaming", "magicdec"},
                                      {"suffix_decoding", "suffix"},
                                      {"sa", "suffix"},
                                      {"glide", "longspec"},
                                      {"layerskip", "exit"},
                                      {"kangaroo", "exit"}}) {
    EXPECT_THAT(
        CheckDrafter({.type = name}).message(),
        AllOf(HasSubstr("is no name here any more"), HasSubstr("--spec-type " + std::string(instead))));
    EXPECT_THAT(CheckDrafter({.type = "ppm," + std::string(name)}).message(),
                HasSubstr("no name here any more"));
  }
}

// Every value of llama.cpp's --spec-type.
TEST(Preset, NamesOfLlamaCppAreKnownOrSayWhatToUse) {
  for (const auto& [name, is] : {std::pair("none", "none"),
                                 {"draft-simple", "lm"},
                                 {"draft-eagle3", "eagle3"},
                                 {"ngram-simple", "ngram"}}) {
    EXPECT_EQ(Settled({.type = name, .draft_model = "x"}).type, is);
    EXPECT_EQ(FindDrafter(name)->name, is);
  }
  for (const auto& [name, instead] : {std::pair("ngram-map-k", "ngram-simple"),
                                      {"ngram-map-k4v", "suffix"},
                                      {"ngram-mod", "suffix"},
                                      {"ngram-cache", "ppm"},
                                      {"draft-mtp", "auto"},
                                      {"draft-dflash", "auto"},
                                      {"draft-dspark", "auto"}}) {
    EXPECT_TRUE(CheckDrafter({.type = instead}).ok()) << instead;
    const std::string right =
        "--spec-type " + std::string(name) + ": is not supported; --spec-type " + instead;
    EXPECT_THAT(CheckDrafter({.type = name}).message(), StartsWith(right));
    EXPECT_THAT(CheckDrafter({.type = "ppm," + std::string(name)}).message(), StartsWith(right));
  }
}

}  // namespace
}  // namespace longspec
