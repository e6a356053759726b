// SPDX-License-Identifier: Apache-2.0
//
// The registry, the options it refuses, and the drafters without state.
#include "draft/drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "draft_model/registry.h"
#include "lab/testing/with_lab.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Registry, KnowsNamesAndAliases) {
  EXPECT_THAT(DrafterNames(), ElementsAre("none", "ngram", "replay", "ppm", "suffix", "recycling", "magicdec",
                                          "partial", "longspec", "eagle", "eagle3", "beagle", "medusa",
                                          "tokenswift", "exit", "lm", "grammar", "prediction", "auto"));
  for (const std::string name :
       {"none", "ngram", "replay", "suffix", "ppm", "grammar", "auto"}) {  // what needs no model
    EXPECT_TRUE(CheckDrafter({.type = name}).ok());
    EXPECT_EQ(CheckDrafter({.type = name, .tree = "4"}).ok(), name != "none" && name != "grammar");
    const auto drafter = MakeDrafter({.type = name});
    ASSERT_TRUE(drafter.ok()) << drafter.status().message();
    EXPECT_EQ((*drafter)->name(), name);
    EXPECT_TRUE((*drafter)->taps().empty());
  }
  for (const char* alias : {"pld", "prompt_lookup", "ngram-simple"}) {
    EXPECT_EQ((*MakeDrafter({.type = alias}))->name(), "ngram");
  }
  for (const char* alias : {"ar", "vanilla"}) EXPECT_EQ((*MakeDrafter({.type = alias}))->name(), "none");
}

TEST(Registry, UnknownTypesListTheKnown) {
  for (const char* type : {"hawk", "", "NGRAM"}) {
    const auto drafter = MakeDrafter({.type = type});
    ASSERT_FALSE(drafter.ok()) << type;
    EXPECT_EQ(drafter.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(drafter.status().message(), HasSubstr("known are none, ngram, replay, ppm, suffix"));
  }
}

TEST(Registry, RefusesOptionsOutOfRange) {
  struct Case {
    SpeculationOptions options;
    const char* message;
  };
  const Case cases[] = {
      {{.draft_n_max = -1}, "--spec-draft-n-max -1: must be 0 or more"},
      {{.draft_n_max = 4, .draft_n_min = 5},
       "--spec-draft-n-min 5: must be from 0 to --spec-draft-n-max (4)"},
      {{.draft_n_min = -1}, "--spec-draft-n-min -1"},
      {{.type = "ngram", .ngram = {.max = 0}}, "--spec-ngram-max 0: must be from 1 to 64"},
      {{.type = "ngram", .ngram = {.max = 65}}, "--spec-ngram-max 65"},
      {{.type = "ngram", .ngram = {.max = 3, .min = 4}},
       "--spec-ngram-min 4: must be from 1 to --spec-ngram-max (3)"},
      {{.type = "ngram", .ngram = {.min = 0}}, "--spec-ngram-min 0"},
      {{.type = "ngram", .ngram = {.rule = "best"}},
       "--spec-ngram-rule best: unknown; known are recent, pld, hf, vllm, tgi, llama"},
      {{.tree = "wide"}, "--spec-tree wide: must be chain or a number"},
      {{.tree = "0"}, "--spec-tree 0"},
      {{.tree = "65"}, "--spec-tree 65"},
      {{.tree = "3x"}, "--spec-tree 3x"},
      {{.type = "ngram", .ngram = {.rule = "hf"}, .tree = "2"},
       "--spec-tree 2: --spec-ngram-rule hf proposes chains"},
      {{.type = "replay", .tree = "-1"}, "--spec-tree -1"},
      {{.type = "replay", .added = Replay({.tokens = {1, -4}})}, "replay_tokens"},
  };
  for (const Case& c : cases) {
    const auto drafter = MakeDrafter(c.options);
    ASSERT_FALSE(drafter.ok()) << c.message;
    EXPECT_EQ(drafter.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(drafter.status().message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(MakeDrafter({.type = "ngram", .ngram = {.rule = "hf"}, .tree = "chain"}).ok());
}

// Speculation that is turned off is a drafter as well: it leaves the tree alone and takes no memory.
TEST(None, ProposesNothing) {
  const auto drafter = MakeDrafter({.type = "none"});
  const std::vector<int32_t> text = {1, 1, 1, 1, 1, 1};
  TokenTree tree(1);
  ASSERT_TRUE((*drafter)->Follow(text).ok());
  ASSERT_TRUE((*drafter)->Propose({8, 8}, text, tree).ok());
  ASSERT_TRUE((*drafter)->Read({.sequence = text, .n_new = 1}).ok());
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ((*drafter)->bytes(), 0U);
}

std::vector<int32_t> Replayed(const char* tree_shape, int n_output, DraftBudget budget, TokenTree& tree) {
  const auto drafter =
      MakeDrafter({.type = "replay", .tree = tree_shape, .added = Replay({.tokens = {10, 11, 0, 13, 14}})});
  std::vector<int32_t> text = {1, 2, 3};
  EXPECT_TRUE((*drafter)->Follow(text).ok());
  text.insert(text.end(), static_cast<size_t>(n_output), 9);
  EXPECT_TRUE((*drafter)->Read({.sequence = text, .n_new = n_output}).ok());
  EXPECT_TRUE((*drafter)->Propose(budget, text, tree).ok());
  EXPECT_LE(tree.size() - 1, budget.max_nodes);
  EXPECT_LE(tree.max_depth(), budget.max_depth);
  EXPECT_GT((*drafter)->bytes(), 0U);
  std::vector<int32_t> tokens;
  for (int i = 1; i < tree.size(); ++i) tokens.push_back(tree.node(i).token);
  return tokens;
}

// A session keeps its drafter as long as its options are equal, whoever made them.
TEST(Replay, OptionsAreEqualByWhatTheyHold) {
  const SpeculationOptions none = {.type = "replay"};
  const SpeculationOptions one = {.type = "replay", .added = Replay({.tokens = {1, 2}})};
  const SpeculationOptions same = {.type = "replay", .added = Replay({.tokens = {1, 2}})};
  const SpeculationOptions other = {.type = "replay", .added = Replay({.tokens = {1, 3}})};
  struct Foreign {
    bool operator==(const Foreign&) const = default;
  };
  const SpeculationOptions foreign = {.type = "replay", .added = AddedDraftOptions(Foreign())};
  EXPECT_EQ(none, SpeculationOptions(none));
  EXPECT_EQ(one, SpeculationOptions(one));
  EXPECT_EQ(one, same);
  EXPECT_NE(one, other);
  EXPECT_NE(one, none);
  EXPECT_NE(none, one);
  EXPECT_NE(one, foreign);
  EXPECT_EQ(foreign.added.Get<ReplayOptions>(), nullptr);
}

TEST(Replay, ChainByOutputIndex) {
  TokenTree start(3), later(9), cut(9), shallow(9), past(9);
  EXPECT_THAT(Replayed("", 0, {8, 8}, start), ElementsAre(10, 11, 0, 13, 14));
  EXPECT_THAT(Replayed("chain", 3, {8, 8}, later), ElementsAre(13, 14));
  EXPECT_THAT(Replayed("", 1, {2, 8}, cut), ElementsAre(11, 0));
  EXPECT_THAT(Replayed("", 1, {8, 1}, shallow), ElementsAre(11));
  EXPECT_THAT(Replayed("", 7, {8, 8}, past), ElementsAre());
}

TEST(Replay, DecoysComeBeforeTheRightChild) {
  TokenTree tree(3);
  EXPECT_THAT(Replayed("3", 0, {8, 8}, tree), ElementsAre(9, 8, 10, 10, 9, 11, 1, 0));
  EXPECT_THAT(tree.PathTo(8), ElementsAre(0, 3, 6, 8));
  EXPECT_EQ(tree.node(7).parent, 6);
  TokenTree last(3);
  EXPECT_THAT(Replayed("4", 1, {1, 1}, last), ElementsAre(11));
}

// A draft that is not there: as often right as was set, and as slow.
TEST(Replay, PlaysADraftOfAChosenAcceptance) {
  std::vector<int32_t> answer(2000);
  for (size_t i = 0; i < answer.size(); ++i) answer[i] = static_cast<int32_t>(i % 50);
  const auto drafter =
      MakeDrafter({.type = "replay", .added = Replay({.tokens = answer, .accept = 0.6F, .step_ms = 0.01F})});
  ASSERT_TRUE(drafter.ok());
  std::vector<int32_t> text = {3};
  ASSERT_TRUE((*drafter)->Follow(text).ok());
  int n_asked = 0, n_right = 0, n_deep = 0, n_both = 0;
  for (size_t i = 0; i + 4 < answer.size(); ++i) {
    TokenTree tree(text.back());
    ASSERT_TRUE((*drafter)->Propose({.max_nodes = 4, .max_depth = 4}, text, tree).ok());
    ASSERT_EQ(tree.max_depth(), 4);
    EXPECT_FLOAT_EQ(tree.node(2).score, 0.36F);
    ++n_asked;
    const bool first = tree.node(1).token == answer[i];
    n_right += first ? 1 : 0;
    n_deep += first ? 1 : 0;
    n_both += first && tree.node(2).token == answer[i + 1] ? 1 : 0;
    text.push_back(answer[i]);
  }
  EXPECT_NEAR(1.0 * n_right / n_asked, 0.6, 0.04);
  EXPECT_NEAR(1.0 * n_both / n_deep, 0.6, 0.05);
  // As deep as it is asked for, at its price.
  const auto dear =
      MakeDrafter({.type = "replay", .added = Replay({.tokens = answer, .accept = 0.6F, .step_ms = 1})});
  const std::vector<int32_t> start = {3};
  ASSERT_TRUE((*dear)->Follow(start).ok());
  TokenTree tree(3);
  const SimulatedClock clock;
  ASSERT_TRUE((*dear)->Propose({.max_nodes = 4, .max_depth = 1}, start, tree).ok());
  EXPECT_EQ(tree.max_depth(), 1);
  EXPECT_EQ(NowMs(), 1);
  EXPECT_THAT(CheckDrafter({.type = "replay", .added = Replay({.accept = 0})}).message(),
              HasSubstr("replay_accept 0"));
  EXPECT_THAT(CheckDrafter({.type = "replay", .added = Replay({.step_ms = -1})}).message(),
              HasSubstr("replay_step_ms -1"));
}

}  // namespace
}  // namespace longspec
