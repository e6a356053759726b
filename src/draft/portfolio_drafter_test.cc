// SPDX-License-Identifier: Apache-2.0
//
// Merging of proposals, and what members see of it.
#include "draft/portfolio_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/pass_meeting.h"
#include "draft_model/registry.h"
#include "lab/testing/with_lab.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Text(std::string_view text) { return {text.begin(), text.end()}; }

std::unique_ptr<Drafter> Make(const SpeculationOptions& options) {
  auto drafter = MakeDrafter(options);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(*drafter);
}

TEST(Portfolio, NamesTellWhatItIs) {
  EXPECT_TRUE(IsPortfolio("auto"));
  EXPECT_TRUE(IsPortfolio("ngram,replay"));
  EXPECT_FALSE(IsPortfolio("ngram"));
  EXPECT_EQ(Make({})->name(), "auto");
  const auto pair = Make({.type = "ngram,replay"});
  EXPECT_EQ(pair->name(), "ngram,replay");
  EXPECT_THAT(pair->sources(), ElementsAre("ngram", "replay"));
  EXPECT_THAT(Make({.type = "ngram"})->sources(), ElementsAre("ngram"));
  EXPECT_TRUE(pair->taps().empty());
}

TEST(Portfolio, RefusesListsThatMakeNoSense) {
  const auto message = [](const char* type) { return CheckDrafter({.type = type}).message(); };
  EXPECT_THAT(message("ngram,auto"), HasSubstr("auto cannot be one of several"));
  EXPECT_THAT(message("none,ngram"), HasSubstr("none cannot be one of several"));
  EXPECT_THAT(message("ngram,ngram"), HasSubstr("ngram is named twice"));
  EXPECT_THAT(message("ngram,magic"), HasSubstr("--spec-type magic: unknown; known are"));
  EXPECT_THAT(message("ngram,"), HasSubstr("unknown"));
  EXPECT_THAT(CheckDrafter({.type = "ngram,replay", .ngram = {.max = 0}}).message(),
              HasSubstr("--spec-ngram-max"));
  EXPECT_THAT(CheckDrafter({.tree = "bush"}).message(), HasSubstr("--spec-tree bush"));
  EXPECT_TRUE(CheckDrafter({.type = "ngram,ppm", .ngram = {.rule = "hf"}}).ok());
}

TEST(Portfolio, MergesProposalsAndSaysWhoseTheyAre) {
  const auto drafter = Make({.type = "ngram,replay",
                             .ngram = {.min = 1},
                             .tree = "chain",
                             .added = Replay({.tokens = Text("cXY")})});
  const auto text = Text("abcdefab");  // ngram: cdefab...; replay: cXY, always certain
  ASSERT_TRUE(drafter->Follow(text).ok());
  TokenTree tree('b');
  ASSERT_TRUE(drafter->Propose({.max_nodes = 8, .max_depth = 4}, text, tree).ok());
  // c, whose better score is replay's; then X Y, and the copy d e f.
  ASSERT_EQ(tree.size(), 7);
  const int c = tree.FindChild(0, 'c');
  ASSERT_GT(c, 0);
  EXPECT_EQ(tree.node(c).source, 1);
  EXPECT_FLOAT_EQ(tree.node(c).score, 1.0F);
  const int x = tree.FindChild(c, 'X');
  const int d = tree.FindChild(c, 'd');
  ASSERT_GT(x, 0);
  ASSERT_GT(d, 0);
  EXPECT_EQ(tree.node(x).source, 1);
  EXPECT_EQ(tree.node(d).source, 0);
  EXPECT_LT(tree.node(d).score, 1.0F);
  EXPECT_GT(drafter->bytes(), 0U);
}

TEST(Portfolio, TheBudgetGoesToTheBestNodes) {
  const auto drafter = Make({.type = "ngram,replay",
                             .ngram = {.min = 1},
                             .tree = "chain",
                             .added = Replay({.tokens = Text("XYZ")})});
  const auto text = Text("abcdefab");
  ASSERT_TRUE(drafter->Follow(text).ok());
  TokenTree tree('b');
  ASSERT_TRUE(drafter->Propose({.max_nodes = 3, .max_depth = 3}, text, tree).ok());
  EXPECT_EQ(tree.size(), 4);
  EXPECT_TRUE(tree.is_chain());
  EXPECT_EQ(tree.node(3).token, 'Z');
  TokenTree more('b');
  ASSERT_TRUE(drafter->Propose({.max_nodes = 4, .max_depth = 3}, text, more).ok());
  EXPECT_EQ(more.size(), 5);
  EXPECT_EQ(more.node(4).token, 'c');
  TokenTree none('b');
  ASSERT_TRUE(drafter->Propose({.max_nodes = 0, .max_depth = 0}, text, none).ok());
  EXPECT_EQ(none.size(), 1);
}

// Whoever chooses whom to ask gets a tree of what those said, at any time.
TEST(Portfolio, AsksMembersOneByOne) {
  const auto drafter = Make({.type = "ngram,replay",
                             .ngram = {.min = 1},
                             .tree = "chain",
                             .added = Replay({.tokens = Text("XYZ")})});
  Portfolio& portfolio = *drafter->portfolio();
  ASSERT_EQ(portfolio.members().size(), 2U);
  EXPECT_EQ(portfolio.members()[0]->portfolio(), nullptr);
  const auto text = Text("abcdefab");
  ASSERT_TRUE(drafter->Follow(text).ok());
  PassMeeting meeting;
  const DraftBudget budget = {.max_nodes = 8, .max_depth = 4};
  for (int round = 0; round < 2; ++round) {
    portfolio.Begin(budget, text);
    ASSERT_TRUE(RunNow(portfolio.Ask(0, budget, text, meeting)).ok());
    TokenTree first('b');
    portfolio.Merge(8, first);
    EXPECT_EQ(first.size(), 5);
    EXPECT_EQ(first.FindChild(0, 'X'), -1);
    EXPECT_EQ(portfolio.proposal(1).size(), 1);
    const DraftBudget own = {.max_nodes = 8, .max_depth = 2};
    ASSERT_TRUE(RunNow(portfolio.Ask(1, own, text, meeting)).ok());
    EXPECT_EQ(portfolio.proposal(1).max_depth(), 2);
    TokenTree both('b');
    portfolio.Merge(8, both);
    EXPECT_EQ(both.size(), 7);
    EXPECT_GT(both.FindChild(0, 'X'), 0);
  }
}

TEST(Portfolio, MembersFollowWhatWasAccepted) {
  const auto drafter = Make({.type = "auto", .ngram = {.min = 2}});
  auto text = Text("the cat sat. ");
  ASSERT_TRUE(drafter->Follow(text).ok());
  for (const char c : std::string_view("the ")) {
    text.push_back(c);
    ASSERT_TRUE(drafter->Read({.sequence = text, .n_new = 1}).ok());
  }
  TokenTree tree(' ');
  ASSERT_TRUE(drafter->Propose({.max_nodes = 3, .max_depth = 3}, text, tree).ok());
  ASSERT_EQ(tree.size(), 4);
  EXPECT_EQ(tree.node(1).token, 'c');
  EXPECT_EQ(tree.node(3).token, 't');
}

// --- Scores of ngram, which the portfolio and the policy go by. ---

float FirstScore(std::string_view text, int min_n = 1) {
  const auto drafter = Make({.type = "ngram", .ngram = {.min = min_n}});
  const auto tokens = Text(text);
  EXPECT_TRUE(drafter->Follow(tokens).ok());
  TokenTree tree(tokens.back());
  EXPECT_TRUE(drafter->Propose({.max_nodes = 4, .max_depth = 4}, tokens, tree).ok());
  EXPECT_GT(tree.size(), 1);
  return tree.node(1).score;
}

TEST(NgramScores, GrowWithTheMatchAndWithAgreement) {
  EXPECT_LT(FirstScore("bcXaYb"), FirstScore("abcXYab"));
  EXPECT_LT(FirstScore("abcXYab"), FirstScore("0123456789cXY0123456789"));
  // Two occurrences that went on differently are worth less than two that agree.
  EXPECT_LT(FirstScore("abX1abY2ab"), FirstScore("abX1abX2ab"));
  EXPECT_GT(FirstScore("0123456789abcdefghijkl---0123456789abcdefghijkl"), 0.9F);
}

TEST(NgramScores, FallAlongThePathAndStayProbabilities) {
  for (const char* tree_shape : {"chain", "4"}) {
    const auto drafter = Make({.type = "ngram", .ngram = {.min = 1}, .tree = tree_shape});
    const auto text = Text("abcdefgabXYZabcQRSbcdTUVabc");
    ASSERT_TRUE(drafter->Follow(text).ok());
    TokenTree tree(text.back());
    ASSERT_TRUE(drafter->Propose({.max_nodes = 20, .max_depth = 8}, text, tree).ok());
    ASSERT_GT(tree.size(), 4);
    for (int i = 1; i < tree.size(); ++i) {
      EXPECT_GT(tree.node(i).score, 0.0F);
      EXPECT_LT(tree.node(i).score, 1.0F);
      EXPECT_LE(tree.node(i).score, tree.node(tree.node(i).parent).score);
    }
  }
}

}  // namespace
}  // namespace longspec
