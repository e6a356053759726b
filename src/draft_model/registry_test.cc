// SPDX-License-Identifier: Apache-2.0
//
// The table of drafters: that it is well formed, and that what it says of options, of draft models and of
// "auto" is what is done.
#include "draft_model/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "draft_model/draft_models.h"
#include "draft_text/text_drafters.h"

namespace longspec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Options with which a drafter is content, as far as options tell.
SpeculationOptions Content(const DrafterEntry& entry) {
  SpeculationOptions options = {.type = std::string(entry.name)};
  if (entry.reads != nullptr) options.draft_model = "x";
  return options;
}

TEST(Table, NamesAreOfOneDrafterAndEachIsExplained) {
  std::set<std::string_view> names;
  for (const DrafterEntry* entry : Drafters()) {
    std::vector<std::string_view> own = {entry->name};
    for (const std::string_view alias : entry->aliases) {
      if (!alias.empty()) own.push_back(alias);
    }
    for (const std::string_view name : own) {
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(FindDrafter(name), entry) << name;
    }
    EXPECT_THAT(std::string(entry->summary), AllOf(Not(""), Not(HasSubstr("\n")))) << entry->name;
    EXPECT_NE(entry->make, nullptr) << entry->name;
    EXPECT_FALSE(entry->alone && entry->in_auto != nullptr) << entry->name;
    EXPECT_EQ(entry->reads != nullptr, entry->fits != nullptr) << entry->name;
  }
  EXPECT_EQ(FindDrafter(""), nullptr);
  EXPECT_EQ(FindDrafter("hawk"), nullptr);
}

TEST(Table, DefaultsAreWithinTheirRangesAndWhatIsNotIsRefusedByName) {
  int n_checked = 0;
  for (const DrafterEntry* entry : Drafters()) {
    EXPECT_TRUE(CheckDrafter(Content(*entry)).ok()) << CheckDrafter(Content(*entry)).message();
    for (const DrafterOption& option : entry->options) {
      EXPECT_THAT(std::string(option.name()), StartsWith("--spec-"));
      const auto refuse = [&](double value) {
        SpeculationOptions options = Content(*entry);
        if (const auto* const number = std::get_if<OptionPlace<int>>(&option.member)) {
          number->In(options) = static_cast<int>(value);
        } else {
          std::get<OptionPlace<float>>(option.member).In(options) = static_cast<float>(value);
        }
        const Status status = CheckDrafter(options);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << option.name() << " " << value;
        EXPECT_THAT(status.message(),
                    AllOf(StartsWith(std::string(option.name()) + " "), HasSubstr("must be")));
        ++n_checked;
      };
      // A text and a flag have no range.
      if (std::holds_alternative<OptionPlace<std::string>>(option.member)) continue;
      if (std::holds_alternative<OptionPlace<bool>>(option.member)) continue;
      refuse(option.least - 1);
      if (option.above_least) refuse(option.least);
      if (std::isfinite(option.most)) refuse(option.most + 1);
      if (std::holds_alternative<OptionPlace<float>>(option.member)) {
        refuse(INFINITY);
        refuse(NAN);
      }
    }
  }
  EXPECT_GT(n_checked, 20);
}

TEST(Table, MessagesSayTheRange) {
  const auto message = [](const SpeculationOptions& options) { return CheckDrafter(options).message(); };
  EXPECT_EQ(message({.type = "suffix", .suffix = {.max_depth = 65}}),
            "--spec-suffix-max-depth 65: must be from 1 to 64");
  EXPECT_EQ(message({.type = "suffix", .suffix = {.factor = 0}}),
            "--spec-suffix-factor 0.000000: must be more than 0");
  EXPECT_EQ(message({.type = "suffix", .suffix = {.min_prob = 2}}),
            "--spec-suffix-min-prob 2.000000: must be from 0 to 1");
  EXPECT_EQ(message({.type = "ppm", .ppm = {.min_prob = 0}}),
            "--spec-ppm-min-prob 0.000000: must be more than 0 and at most 1");
  EXPECT_EQ(message({.type = "magicdec", .magicdec = {.window = 0}}),
            "--spec-magicdec-window 0: must be from 1 to 16777216");
}

TEST(Table, AnOptionOfSeveralDraftersIsOne) {
  std::set<std::string_view> flags;
  std::string readers;
  for (const ReadOption& read : DrafterOptions()) {
    EXPECT_TRUE(flags.insert(read.option->flags).second) << read.option->flags;
    if (read.option->name() == "--spec-draft-model") readers = read.readers;
  }
  EXPECT_EQ(readers, "longspec, eagle, eagle3, beagle, medusa, tokenswift, exit, lm");
  EXPECT_TRUE(flags.contains("--spec-ngram-max,--ngram-max"));
}

TEST(Table, EveryDraftModelHasOneReader) {
  EXPECT_EQ(FindReader("longspec"), &kLongspecDrafter);
  EXPECT_EQ(FindReader("eagle"), &kEagleDrafter);
  EXPECT_EQ(FindReader("eagle3"), &kEagle3Drafter);
  EXPECT_EQ(FindReader("beagle"), &kBeagleDrafter);
  EXPECT_EQ(FindReader("medusa"), &kMedusaDrafter);
  EXPECT_EQ(FindReader("tokenswift"), &kTokenswiftDrafter);
  EXPECT_EQ(FindReader("exit"), &kExitDrafter);
  for (const char* architecture : {"llama", "qwen2", "of tomorrow"}) {
    EXPECT_EQ(FindReader(architecture), &kLmDrafter);
  }
  for (const DrafterEntry* entry : Drafters()) {
    if (entry->reads == nullptr) continue;
    const Status status = CheckDrafter({.type = std::string(entry->name)});
    EXPECT_THAT(status.message(),
                HasSubstr("needs a draft model; name its file or folder with --spec-draft-model"));
  }
}

TEST(Table, AutoAsksItsMembersInTheOrderOfTheTable) {
  EXPECT_THAT((*MakeDrafter({.type = "auto"}))->sources(), ElementsAre("ppm", "suffix", "grammar"));
  const SpeculationOptions recycled = {.type = "auto", .recycling = {.file = "/nonexistent/table"}};
  // It is asked: without a target it cannot be made.
  EXPECT_THAT(MakeDrafter(recycled).status().message(), HasSubstr("--spec-type recycling"));
}

// One that no drafter would take, whatever the file holds, is refused before it is opened.
TEST(Table, AutoRefusesOptionsThatNoReaderOfDraftModelsTakes) {
  EXPECT_THAT(CheckDrafter({.type = "auto", .draft_model = "x", .draft_weights = "q9"}).message(),
              HasSubstr("--spec-draft-weights q9"));
  EXPECT_TRUE(CheckDrafter({.type = "auto", .draft_model = "x", .draft_weights = "bf16"}).ok());
  EXPECT_THAT(CheckDrafter({.type = "auto", .draft_weights = "q9"}).message(),
              StartsWith("--spec-draft-weights: has no effect with --spec-type auto; it is for longspec, "));
}

TEST(Table, AnAliasInAListIsTheDrafter) {
  EXPECT_THAT(CheckDrafter({.type = "ngram,pld"}).message(), HasSubstr("pld is named twice"));
  EXPECT_THAT(CheckDrafter({.type = "ngram,vanilla"}).message(),
              HasSubstr("vanilla cannot be one of several"));
  SpeculationOptions options;
  kNgramDrafter.as_member(options);
  EXPECT_EQ(options.tree, "4");
}

TEST(Table, AWindowIsNarrowedToHalfOfAShortText) {
  SpeculationOptions options;
  kMagicDecDrafter.narrow(options, 20);
  EXPECT_EQ(options.magicdec.window, 10);
  kMagicDecDrafter.narrow(options, 1);
  EXPECT_EQ(options.magicdec.window, 1);
  options = {};
  kMagicDecDrafter.narrow(options, 100000);
  EXPECT_EQ(options.magicdec.window, SpeculationOptions().magicdec.window);
}

}  // namespace
}  // namespace longspec
