// SPDX-License-Identifier: Apache-2.0
//
// Who knows the dice knows what the target will choose: chances are honest, and a perfect draft is never
// wrong.
#include "draft/foresight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "draft/growing_drafter.h"
#include "draft/testing/table_model.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;

constexpr int kForesightVocab = 100;
constexpr DiceModel kExact = {.belief = 1, .dice = 1, .other = 0};

SamplingOptions Unfiltered(float temperature) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  options.seed = 11;
  return options;
}

Sampler MakeSampler(const SamplingOptions& options) {
  auto sampler = Sampler::Create(options, kForesightVocab);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return *sampler;
}

std::vector<int32_t> Tokens(const std::vector<Guess>& guesses) {
  std::vector<int32_t> tokens;
  for (const Guess& guess : guesses) tokens.push_back(guess.token);
  return tokens;
}

double Sum(const std::vector<Guess>& guesses) {
  double sum = 0;
  for (const Guess& guess : guesses) sum += guess.chance;
  return sum;
}

const std::vector<int32_t> kHistory = {5, 6, 7, 7};
const TokenHistory kThere = {.committed = kHistory, .drafted = {}};
const std::vector<Guess> kGuesses = {
    {.token = 7, .chance = 0.2}, {.token = 3, .chance = 0.5}, {.token = 9, .chance = 0.2}};

TEST(Foresight, AHugeBiasLeavesChances) {
  for (const float temperature : {0.0F, 0.7F}) {
    SamplingOptions options = Unfiltered(temperature);
    for (int i = 0; i < 10; ++i) options.logit_bias.emplace_back(3, 100.0F);
    const Sampler sampler = MakeSampler(options);
    const Foresight foresight(&sampler, false);
    for (const bool whole : {false, true}) {
      std::vector<Guess> guesses = kGuesses;
      if (whole) {
        foresight.RefineDistribution(kExact, kThere, 0.1, guesses);
      } else {
        foresight.Refine(kExact, kThere, 0.1, guesses);
      }
      ASSERT_FALSE(guesses.empty());
      EXPECT_EQ(guesses[0].token, 3);
      EXPECT_NEAR(guesses[0].chance, 1, 1e-9);
      for (const Guess& guess : guesses) EXPECT_TRUE(guess.chance >= 0 && guess.chance <= 1) << guess.token;
    }
  }
}

TEST(Foresight, WithoutKnowledgeItOnlySorts) {
  for (const Foresight& blind : {Foresight(), Foresight(nullptr, true)}) {
    std::vector<Guess> guesses = kGuesses;
    blind.Refine(kExact, kThere, 0.1, guesses);
    EXPECT_FALSE(blind.has_dice());
    EXPECT_THAT(Tokens(guesses), ElementsAre(3, 7, 9));
    EXPECT_EQ(guesses[0].chance, 0.5);
    blind.RefineDistribution(kExact, kThere, 0.1, guesses);
    EXPECT_EQ(guesses[0].chance, 0.5);
  }
}

TEST(Foresight, GreedyTargetsHaveNoDice) {
  const Sampler greedy = MakeSampler(Unfiltered(0));
  std::vector<Guess> guesses = kGuesses;
  Foresight(&greedy, true).Refine(kExact, kThere, 0.1, guesses);
  EXPECT_FALSE(Foresight(&greedy, true).has_dice());
  EXPECT_EQ(guesses[0].chance, 0.5);
}

TEST(Foresight, ChancesAreTheModels) {
  const Sampler sampler = MakeSampler(Unfiltered(1));
  const DiceModel model = {.belief = 0.8, .dice = 0.4, .other = 0.7};
  std::vector<Guess> guesses = kGuesses;
  Foresight(&sampler, true).Refine(model, kThere, 0.1, guesses);
  const Dice dice = sampler.DiceAt(kHistory.size());
  const auto weight = [&](const Guess& guess) {
    return std::pow(guess.chance, 0.8) * std::exp(0.4 * dice.Gumbel(guess.token));
  };
  double total = std::pow(0.1, 0.8) * std::exp(0.7);
  for (const Guess& guess : kGuesses) total += weight(guess);
  for (const Guess& guess : kGuesses) {
    const auto found = std::ranges::find(guesses, guess.token, &Guess::token);
    EXPECT_NEAR(found->chance, weight(guess) / total, 1e-12);
  }
  EXPECT_TRUE(std::ranges::is_sorted(guesses, std::greater<>(), &Guess::chance));
}

// A draft that believes what the target believes, and throws its dice, is always right.
TEST(Foresight, APerfectDraftForeseesTheChoice) {
  for (const float temperature : {0.7F, 1.0F, 1.5F}) {
    const Sampler sampler = MakeSampler(Unfiltered(temperature));
    Sampler::Scratch scratch;
    const RngStream rng{.seed = 3, .purpose = RngPurpose::kTest};
    for (uint32_t round = 0; round < 200; ++round) {
      std::vector<float> logits(kForesightVocab);
      double total = 0;
      for (uint32_t i = 0; i < kForesightVocab; ++i) {
        logits[i] = static_cast<float>(6 * rng.Uniform(round, i));
        total += std::exp(static_cast<double>(logits[i]));
      }
      std::vector<Guess> guesses;
      for (int32_t i = 0; i < kForesightVocab; ++i) {
        guesses.push_back(
            {.token = i, .chance = std::exp(static_cast<double>(logits[static_cast<size_t>(i)])) / total});
      }
      const std::vector<int32_t> text(round + 1, 1);
      const TokenHistory there = {.committed = text, .drafted = {}};
      const int32_t choice = sampler.Sample(logits, there, text.size(), scratch);
      Foresight(&sampler, true).RefineDistribution(kExact, there, 0, guesses);
      EXPECT_EQ(guesses[0].token, choice);
      EXPECT_NEAR(Sum(guesses), 1, 1e-9);
    }
  }
}

// Where dice are all that is known, the chances that a sampled target takes the guesses are what they claim
// to be: softmax of the numbers with errors of scale s is exact for belief = dice = 1 / s.
TEST(Foresight, ChancesAreHonestForErrorsOfTheGumbelDistribution) {
  constexpr double kScale = 2;
  constexpr DiceModel kModel = {.belief = 1 / kScale, .dice = 1 / kScale, .other = 0};
  const Sampler sampler = MakeSampler(Unfiltered(1));
  const Sampler errors = *Sampler::Create(
      [] {
        SamplingOptions other = Unfiltered(1);
        other.seed = 99;
        return other;
      }(),
      kForesightVocab);
  double claimed = 0, right = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int32_t> text(static_cast<size_t>(round % 500 + 1), round);
    const auto position = static_cast<uint64_t>(round + 1);
    std::vector<Guess> guesses;
    for (int32_t i = 0; i < 8; ++i) guesses.push_back({.token = i, .chance = (i + 1) / 36.0});
    // The target's log p is the draft's with an error.
    const auto key = [&](const Guess& g) {
      return std::log(g.chance) + kScale * errors.DiceAt(position).Gumbel(g.token) +
             sampler.DiceAt(text.size()).Gumbel(g.token);
    };
    const int32_t choice = std::ranges::max_element(guesses, {}, key)->token;
    Foresight(&sampler, true).Refine(kModel, {.committed = text, .drafted = {}}, 0, guesses);
    claimed += guesses[0].chance;
    right += guesses[0].token == choice ? 1 : 0;
  }
  EXPECT_NEAR(claimed / kRounds, right / kRounds, 0.025);
}

TEST(Foresight, WhatIsMissingCountsHoweverCompleteTheListSeems) {
  const Sampler sampler = MakeSampler(Unfiltered(1));
  std::vector<Guess> sure = {{.token = 1, .chance = 1}}, doubted = sure;
  Foresight(&sampler, true).Refine({.belief = 1, .dice = 0}, kThere, 0, sure);
  Foresight(&sampler, true).Refine({.belief = 1, .dice = 0, .other = 0, .missing = 0.25}, kThere, 0, doubted);
  EXPECT_EQ(sure[0].chance, 1.0);
  EXPECT_NEAR(doubted[0].chance, 0.8, 1e-12);
}

TEST(Foresight, DiceAreThoseOfThePosition) {
  const Sampler sampler = MakeSampler(Unfiltered(1));
  const std::vector<int32_t> drafted = {1};
  std::vector<Guess> here = kGuesses, further = kGuesses, off = kGuesses;
  Foresight(&sampler, true).Refine(kExact, kThere, 0.1, here);
  Foresight(&sampler, true).Refine(kExact, {.committed = kHistory, .drafted = drafted}, 0.1, further);
  Foresight(&sampler, false).Refine(kExact, kThere, 0.1, off);
  EXPECT_NE(here[0].chance, further[0].chance);
  EXPECT_EQ(off[0].chance, 0.5);
}

TEST(Foresight, BiasAndPenaltiesMoveChances) {
  SamplingOptions options = Unfiltered(0);
  options.logit_bias = {{3, -std::numeric_limits<float>::infinity()}, {9, std::log(3.0F)}};
  options.presence_penalty = 0.5F;
  options.frequency_penalty = 0.25F;
  const Sampler sampler = MakeSampler(options);
  std::vector<Guess> guesses = kGuesses;
  Foresight(&sampler, true).Refine(kExact, kThere, 0.1, guesses);
  EXPECT_THAT(Tokens(guesses), ElementsAre(9, 7));  // 3 cannot come
  const double seven = 0.2 * std::exp(-0.5 - 2 * 0.25), nine = 0.2 * 3;
  EXPECT_NEAR(guesses[0].chance, nine / (seven + nine + 0.1), 1e-6);
  EXPECT_NEAR(guesses[1].chance, seven / (seven + nine + 0.1), 1e-6);
}

TEST(Foresight, DistributionsAreFilteredByAWideMarginAndTempered) {
  SamplingOptions options = Unfiltered(0.5F);
  options.min_p = 0.4F;
  const Sampler sampler = MakeSampler(options);
  std::vector<Guess> guesses = {
      {.token = 1, .chance = 0.6}, {.token = 2, .chance = 0.2}, {.token = 3, .chance = 0.05}};
  Foresight(&sampler, false).RefineDistribution(kExact, kThere, 0.15, guesses);
  ASSERT_THAT(Tokens(guesses), ElementsAre(1, 2));  // 0.05 is less than a quarter of 0.4 times 0.6
  EXPECT_NEAR(guesses[0].chance, 0.36 / 0.40, 1e-9);
  options = Unfiltered(1);
  options.top_k = 1;
  const Sampler first = MakeSampler(options);
  Foresight(&first, false).RefineDistribution(kExact, kThere, 0, guesses);
  EXPECT_THAT(Tokens(guesses), ElementsAre(1));
  EXPECT_EQ(guesses[0].chance, 1.0);
}

// Temperatures at which exponentials over- or underflow, and chances that are nearly nothing, leave chances.
TEST(Foresight, SurvivesExtremes) {
  for (const float temperature : {1e-30F, 1e-3F, 1e30F}) {
    const Sampler sampler = MakeSampler(Unfiltered(temperature));
    for (const double small : {0.0, 1e-320, 1e-30}) {
      std::vector<Guess> guesses = {
          {.token = 1, .chance = small}, {.token = 2, .chance = 0.9}, {.token = 3, .chance = small}};
      const Foresight foresight(&sampler, true);
      foresight.Refine(kExact, kThere, 0.1, guesses);
      for (const Guess& guess : guesses) EXPECT_TRUE(guess.chance >= 0 && guess.chance <= 1);
      foresight.RefineDistribution(kExact, kThere, 0.1, guesses);
      for (const Guess& guess : guesses) EXPECT_TRUE(guess.chance >= 0 && guess.chance <= 1) << guess.chance;
      guesses.clear();
      foresight.RefineDistribution(kExact, kThere, 1, guesses);
      EXPECT_TRUE(guesses.empty());
    }
  }
}

// Grown over the target's own probabilities, the first child of each node is the target's choice there.
TEST(GuidedGrowth, TreesFollowTheTargetsChoices) {
  const auto law = [](const testing::Path& path) {
    std::vector<double> p(kForesightVocab);
    double total = 0;
    for (uint32_t i = 0; i < kForesightVocab; ++i) {
      p[i] = std::exp(5 * RngStream{.seed = 8}.Uniform(path.size(), i + (path.empty() ? 0 : path.back())));
      total += p[i];
    }
    for (double& x : p) x /= total;
    return p;
  };
  const Sampler sampler = MakeSampler(Unfiltered(0.8F));
  Sampler::Scratch scratch;
  testing::TableModel model(law);
  GuidedGrowth guided(model, nullptr, {.max_depth = 3, .foresight = Foresight(&sampler, true)}, kExact,
                      kHistory);
  TokenTree tree(kHistory.back());
  TreeShape shape;
  shape.widths = {3, 3, 3};
  ASSERT_TRUE(GrowTreeNow(shape, {.max_nodes = 9, .max_depth = 3}, guided, tree).ok());
  testing::Path path;
  for (int node = tree.node(0).first_child; node >= 0; node = tree.node(node).first_child) {
    std::vector<float> logits;
    for (const double p : law(path)) logits.push_back(static_cast<float>(std::log(p)));
    const TokenHistory there = {.committed = kHistory, .drafted = path};
    EXPECT_EQ(tree.node(node).token, sampler.Sample(logits, there, there.size(), scratch));
    path.push_back(tree.node(node).token);
  }
  EXPECT_EQ(path.size(), 3U);
}

}  // namespace
}  // namespace longspec
