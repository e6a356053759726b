// SPDX-License-Identifier: Apache-2.0
//
// Two opinions mixed, the weight that is learned of them, and trees that ask the model only where it pays.
#include "draft/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "draft/growing_drafter.h"
#include "draft/testing/table_model.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;

// Says the same of every place.
class Steady final : public Adviser {
 public:
  explicit Steady(std::vector<Guess> says) : says_(std::move(says)) {}
  void Advise(std::span<const int32_t>, double least, std::vector<Guess>& guesses) override {
    guesses = says_;
    std::erase_if(guesses, [&](const Guess& guess) { return guess.chance < least; });
  }

 private:
  std::vector<Guess> says_;
};

std::vector<int32_t> TokensOf(const std::vector<Guess>& guesses) {
  std::vector<int32_t> tokens;
  for (const Guess& guess : guesses) tokens.push_back(guess.token);
  return tokens;
}

TEST(Mixture, WeighsBothOpinions) {
  Steady adviser({{.token = 9, .chance = 0.02}, {.token = 2, .chance = 0.6}});
  Mixture mixture(adviser);
  const double w = mixture.WeightBeside(0.6);
  ASSERT_GT(w, 0);
  ASSERT_LT(w, 1);
  std::vector<Guess> guesses = {{.token = 1, .chance = 0.6}, {.token = 2, .chance = 0.3}};
  mixture.Mix({}, guesses);
  ASSERT_EQ(guesses.size(), 3U);
  const auto chance = [&](int32_t token) { return std::ranges::find(guesses, token, &Guess::token)->chance; };
  EXPECT_DOUBLE_EQ(chance(1), w * 0.6);
  EXPECT_DOUBLE_EQ(chance(2), w * 0.3 + (1 - w) * 0.6);
  EXPECT_DOUBLE_EQ(chance(9), (1 - w) * 0.02);
  EXPECT_TRUE(std::ranges::is_sorted(guesses, std::greater<>(), &Guess::chance));
  EXPECT_TRUE(mixture.used());
}

// Whose a guess is: who says more of it, the weight counted; where the model was not asked, the adviser's.
TEST(Mixture, KnowsWhoseAGuessIs) {
  Steady adviser({{.token = 2, .chance = 0.6}, {.token = 3, .chance = 0.2}});
  Mixture mixture(adviser);
  std::vector<Guess> guesses = {{.token = 1, .chance = 0.5}, {.token = 3, .chance = 0.45}};
  mixture.Mix({}, guesses);
  EXPECT_FALSE(mixture.IsAdvisers({}, 1));
  EXPECT_TRUE(mixture.IsAdvisers({}, 2));
  EXPECT_EQ(mixture.IsAdvisers({}, 3),
            (1 - mixture.WeightBeside(0.6)) * 0.2 > mixture.WeightBeside(0.6) * 0.45);
  const std::vector<int32_t> elsewhere = {1};
  EXPECT_TRUE(mixture.IsAdvisers(elsewhere, 1));
}

TEST(Mixture, WithoutTheModelTheAdviserHasTheWord) {
  Steady adviser({{.token = 3, .chance = 0.2}, {.token = 5, .chance = 0.7}});
  Mixture mixture(adviser);
  std::vector<Guess> guesses;
  mixture.Mix({}, guesses);
  EXPECT_THAT(TokensOf(guesses), ElementsAre(5, 3));
  EXPECT_DOUBLE_EQ(guesses[0].chance, 0.7);
  EXPECT_FALSE(mixture.used());
}

// The text follows one of them; how sure the adviser was tells the cases apart.
TEST(Mixture, LearnsWhomToBelieve) {
  for (const bool model_is_right : {true, false}) {
    Steady adviser({{.token = 5, .chance = 0.6}});
    Mixture mixture(adviser);
    const double before = mixture.WeightBeside(0.6), elsewhere = mixture.WeightBeside(0.05);
    std::vector<int32_t> text = {1};
    for (int i = 0; i < 200; ++i) {
      mixture.Begin(1);
      std::vector<Guess> guesses = {{.token = 4, .chance = 0.6}};
      mixture.Mix({}, guesses);
      text.push_back(model_is_right ? 4 : 5);
      mixture.Learn(text, 1);
    }
    if (model_is_right) {
      EXPECT_GT(mixture.WeightBeside(0.6), 0.9);
    } else {
      EXPECT_LT(mixture.WeightBeside(0.6), 0.1);
    }
    EXPECT_NE(mixture.WeightBeside(0.6), before);
    EXPECT_EQ(mixture.WeightBeside(0.05), elsewhere);
  }
}

// What was said of a continuation that did not come says nothing.
TEST(Mixture, LearnsOnlyFromWhatCame) {
  Steady adviser({{.token = 5, .chance = 0.6}});
  Mixture mixture(adviser);
  const double before = mixture.WeightBeside(0.6);
  mixture.Begin(1);
  std::vector<Guess> guesses = {{.token = 5, .chance = 0.9}};
  const std::vector<int32_t> other_path = {7};
  mixture.Mix(other_path, guesses);
  const std::vector<int32_t> text = {1, 4, 5};
  mixture.Learn(text, 2);
  EXPECT_EQ(mixture.WeightBeside(0.6), before);
  // And what was said before the last proposal is forgotten.
  mixture.Learn(text, 2);
  EXPECT_FALSE(mixture.used());
}

// A model that says how deep it was asked.
class DeepTable final : public GrowthModel {
 public:
  DraftTask Expand(std::span<const GrownNode> nodes, std::span<const int32_t> which, int k,
                   std::vector<std::vector<TokenScore>>& next) override {
    levels = std::max(levels, nodes[static_cast<size_t>(which[0])].depth + 1);
    return table_.Expand(nodes, which, k, next);
  }
  int levels = 0;

 private:
  testing::TableModel table_{[](const testing::Path&) { return std::vector{0.5, 0.4, 0.1}; }};
};

TEST(Mixture, DeepLevelsAreTheAdvisers) {
  Steady adviser({{.token = 1, .chance = 0.8}});
  Mixture mixture(adviser);
  const std::vector<int32_t> text = {7};
  for (const int max_levels : {1, 2, 4, 100}) {
    mixture.Begin(4);
    TokenTree tree(text.back());
    TreeShape shape;
    shape.widths = {2, 2, 2, 2};
    DeepTable model;
    GuidedGrowth guided(model, &mixture, {.max_nodes = 8, .max_depth = max_levels, .least_chance = 0.15},
                        kDiceOfModels, text);
    EXPECT_TRUE(GrowTreeNow(shape, {.max_nodes = 8, .max_depth = 4}, guided, tree).ok());
    EXPECT_EQ(tree.max_depth(), 4);
    EXPECT_EQ(model.levels, std::min(max_levels, 4));
  }
}

}  // namespace
}  // namespace longspec
