// SPDX-License-Identifier: Apache-2.0
//
// Merging of proposals, and what members see of it.
#include "draft/portfolio_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "draft/asking_gain.h"
#include "draft/drafter.h"
#include "draft_model/registry.h"

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
  const auto drafter =
      Make({.type = "ngram,replay", .ngram = {.min = 1}, .tree = "chain", .replay = {.tokens = Text("cXY")}});
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
  const auto drafter =
      Make({.type = "ngram,replay", .ngram = {.min = 1}, .tree = "chain", .replay = {.tokens = Text("XYZ")}});
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

// A text that ngram cannot guess beside a played draft that takes time.
class DearMember : public ::testing::Test {
 protected:
  // The share of rounds in which the played draft was asked. Its guesses are verified, or all is left out.
  double AskedShare(float accept, float step_ms, double token_ms, AskingGain* gain, bool verified = true) {
    std::vector<int32_t> answer(400);
    const RngStream rng = {.seed = 5, .sequence = 0, .purpose = RngPurpose::kTest};
    for (size_t i = 0; i < answer.size(); ++i) answer[i] = static_cast<int32_t>(rng.Uniform(i) * 1000);
    auto drafter = MakeDrafter({.type = "ngram,replay",
                                .ngram = {.min = 3},
                                .replay = {.tokens = answer, .accept = accept, .step_ms = step_ms}});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    std::vector<int32_t> text = {3};
    EXPECT_TRUE((*drafter)->Follow(text).ok());
    int n_asked = 0, n_rounds = 0;
    for (size_t i = 0; i + 4 < answer.size(); ++n_rounds) {
      TokenTree tree(text.back());
      EXPECT_TRUE(
          (*drafter)
              ->Propose(
                  {.max_nodes = 3, .max_depth = 3, .token_ms = token_ms, .asking = gain, .dear_ms = 0.02},
                  text, tree)
              .ok());
      n_asked += tree.size() > 1 ? 1 : 0;
      if (!verified) tree = TokenTree(text.back());
      int n_new = 1;
      for (int at = tree.FindChild(0, answer[i]); at > 0;
           at = tree.FindChild(at, answer[i + static_cast<size_t>(n_new) - 1])) {
        ++n_new;
      }
      for (int k = 0; k < n_new; ++k) text.push_back(answer[i++]);
      EXPECT_TRUE((*drafter)->Read({.sequence = text, .n_new = n_new, .tree = &tree}).ok());
    }
    return 1.0 * n_asked / n_rounds;
  }

 private:
  const SimulatedClock clock_;
};

TEST_F(DearMember, IsAskedWhereItPays) {
  AskingGain gain;
  EXPECT_EQ(AskedShare(0.9F, 0.05F, 20, &gain), 1);
  EXPECT_GT(gain.added(0, 1), 0.7);
  EXPECT_GT(gain.added(0, 2), 0.5);
  EXPECT_GE(gain.level_ms(), 0.05);
}

TEST_F(DearMember, IsLeftOutWhereItDoesNot) {
  AskingGain gain;
  EXPECT_LT(AskedShare(0.05F, 0.2F, 0.4, &gain), 0.2);
  EXPECT_LT(gain.added(0, 1), 0.2);
  // Its next sequence knows, from the first round on.
  EXPECT_TRUE(gain.IsDear(1, 0.02));
  EXPECT_FALSE(gain.IsDear(0, 0.02));
  EXPECT_LT(AskedShare(0.05F, 0.2F, 0.4, &gain), 0.06);
  // Where nobody counts, all are asked.
  EXPECT_EQ(AskedShare(0.05F, 0.05F, 0.4, nullptr), 1);
}

// In a batch whose rows are filled by others, say.
TEST_F(DearMember, IsLeftOutWhereNothingIsVerified) {
  AskingGain gain;
  EXPECT_LT(AskedShare(0.9F, 0.05F, 0.4, &gain, false), 0.2);
  for (int i = 0; i < 20; ++i) (void)AskedShare(0.9F, 0.05F, 0.4, &gain, false);
  EXPECT_LT(gain.added(0, 1), 0.05);
  // It is tried again, and asked where its guesses are verified: how soon depends on the machine.
  (void)AskedShare(0.9F, 0.05F, 0.4, &gain);
  EXPECT_GT(AskedShare(0.9F, 0.05F, 0.4, &gain), 0.6);
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
