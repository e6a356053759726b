// SPDX-License-Identifier: Apache-2.0
//
// One node: every exact rule by enumeration and by Monte Carlo, every wrong rule rejected by the same means.
#include "verify/testing/node_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "verify/testing/chi_square.h"
#include "verify/testing/enumerating_coin.h"
#include "verify/testing/language.h"
#include "verify/testing/rules.h"

namespace longspec::testing {
namespace {

struct EnumeratedLaw {
  std::vector<double> tokens = std::vector<double>(kP.size(), 0.0);
  double acceptance = 0;
};

EnumeratedLaw Enumerate(const NodeRule& rule, size_t vocab = kP.size()) {
  EnumeratedLaw law;
  law.tokens.assign(vocab, 0.0);
  EnumeratingCoin::ForEachBranch(rule, [&](const NodeVerdict& verdict, double probability) {
    law.tokens[static_cast<size_t>(verdict.token)] += probability;
    if (verdict.child >= 0) law.acceptance += probability;
  });
  return law;
}

double ChiSquarePerSample(const std::vector<double>& law, const std::vector<double>& p) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += (law[i] - p[i]) * (law[i] - p[i]) / p[i];
  return sum;
}

TEST(Enumeration, ExactRulesKeepTheLawAndAcceptAsMuchAsTheyCan) {
  for (const ExactCase& c : ExactCases()) {
    SCOPED_TRACE(c.name);
    const EnumeratedLaw law = Enumerate(c.rule);
    EXPECT_LT(TotalVariation(law.tokens, kP), 1e-12);
    EXPECT_NEAR(law.acceptance, c.acceptance, c.tolerance);
  }
}

TEST(Enumeration, WrongRulesAreWrongByTheKnownAmount) {
  for (const WrongCase& c : WrongCases()) {
    SCOPED_TRACE(c.name);
    const EnumeratedLaw law = Enumerate(c.rule);
    EXPECT_NEAR(std::accumulate(law.tokens.begin(), law.tokens.end(), 0.0), 1.0, 1e-12);
    const bool coarse = c.chi2 < 0;
    EXPECT_NEAR(TotalVariation(law.tokens, kP), c.tv, coarse ? 5e-4 : 5e-6);
    if (!coarse) {
      EXPECT_NEAR(ChiSquarePerSample(law.tokens, kP), c.chi2, c.chi2_tolerance);
    }
  }
}

constexpr double kAlpha = 1e-6;

struct Sampled {
  std::vector<int64_t> counts = std::vector<int64_t>(kP.size(), 0);
  int64_t accepted = 0;
  double p_value() const { return ChiSquarePValue(counts, kP); }
};

Sampled Sample(const NodeRule& rule, uint64_t n, uint64_t seed) {
  Sampled sampled;
  const RngStream stream{.seed = seed, .purpose = RngPurpose::kTest};
  for (uint64_t i = 0; i < n; ++i) {
    RngCoin coin(stream, i);
    const NodeVerdict verdict = rule(coin);
    ++sampled.counts[static_cast<size_t>(verdict.token)];
    sampled.accepted += verdict.child >= 0 ? 1 : 0;
  }
  return sampled;
}

TEST(MonteCarlo, ExactRulesPass) {
  uint64_t seed = 100;
  for (const ExactCase& c : ExactCases()) {
    SCOPED_TRACE(c.name);
    const Sampled sampled = Sample(c.rule, c.samples, ++seed);
    EXPECT_GT(sampled.p_value(), kAlpha) << "seed " << seed;
    const auto n = static_cast<double>(c.samples);
    const double sigma = std::sqrt(n * c.acceptance * (1 - c.acceptance));
    EXPECT_NEAR(static_cast<double>(sampled.accepted), n * c.acceptance, 5 * sigma + n * c.tolerance);
  }
}

TEST(MonteCarlo, WrongRulesAreRejected) {
  uint64_t seed = 200;
  for (const WrongCase& c : WrongCases()) {
    EXPECT_LT(Sample(c.rule, c.samples, ++seed).p_value(), kAlpha) << c.name << ", seed " << seed;
  }
}

TEST(KSeq, SmallestValidGamma) {
  EXPECT_NEAR(KSeqGamma(kP, kQ, 2), 1.3888, 5e-5);
  EXPECT_NEAR(KSeqGamma(kP, kQ, 3), 1.6292, 5e-5);
  EXPECT_EQ(KSeqGamma(kP, kQ, 1), 1.0);
  EXPECT_EQ(KSeqGamma(kP, kP, 4), 1.0);  // everything is accepted at once
  // Just valid: P_acc <= gamma * beta there, and no longer a little below.
  for (const int k : {2, 3, 5}) {
    const double gamma = KSeqGamma(kP, kQ, k);
    const auto slack = [&](double g) {
      double beta = 0;
      for (size_t v = 0; v < kP.size(); ++v) beta += std::min(kQ[v], kP[v] / g);
      return g * beta - KSeqAcceptance(kP, kQ, k, g);
    };
    EXPECT_GE(slack(gamma), 0.0);
    EXPECT_LT(slack(gamma - 1e-6), 0.0);
  }
}

TEST(KSeq, GammaOneHasANegativeResidual) {
  double beta = 0, total = 0, lowest = 0;
  for (size_t v = 0; v < kP.size(); ++v) beta += std::min(kQ[v], kP[v]);
  const double scale = KSeqAcceptance(kP, kQ, 2, 1.0) / beta;
  std::vector<double> residual;
  for (size_t v = 0; v < kP.size(); ++v) {
    residual.push_back(kP[v] - std::min(kQ[v], kP[v]) * scale);
    total += residual.back();
  }
  for (const double r : residual) lowest = std::min(lowest, r / total);
  EXPECT_NEAR(lowest, -1.077, 5e-4);
  // And so the rule with gamma 1 is wrong.
  const EnumeratedLaw law =
      Enumerate([](Coin& c) { return VerifyKSeq(DrawIndependent(2, c), kP, kQ, 1.0, c); });
  EXPECT_GT(TotalVariation(law.tokens, kP), 0.01);
}

// --- Drafts that are as unhelpful as they can be. ---

std::vector<double> RandomLaw(uint64_t seed, size_t vocab, bool sparse) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  std::vector<double> law(vocab);
  for (size_t i = 0; i < vocab; ++i) law[i] = sparse && rng.Uniform(i, 1) < 0.4 ? 0.0 : rng.Uniform(i) + 0.01;
  law[static_cast<size_t>(rng.Uniform(99) * static_cast<double>(vocab))] += 0.1;
  const double total = std::accumulate(law.begin(), law.end(), 0.0);
  for (double& x : law) x /= total;
  return law;
}

void ExpectEveryRuleExact(const std::vector<double>& p, const std::vector<double>& q, int k) {
  const auto expect = [&](const char* name, const NodeRule& rule) {
    EXPECT_LT(TotalVariation(Enumerate(rule, p.size()).tokens, p), 1e-12) << name << " k=" << k;
  };
  const auto draw = [&](Coin& coin) {
    std::vector<int32_t> children;
    for (int i = 0; i < k; ++i) children.push_back(coin.Draw(q));
    return children;
  };
  const auto draw_distinct = [&](Coin& coin) {
    std::vector<int32_t> children;
    std::vector<double> left = q;
    for (int i = 0; i < k && std::accumulate(left.begin(), left.end(), 0.0) > 0; ++i) {
      children.push_back(coin.Draw(left));
      left[static_cast<size_t>(children.back())] = 0;
    }
    return children;
  };
  expect("independent", [&](Coin& c) { return VerifyIndependent(draw(c), p, q, c); });
  expect("without", [&](Coin& c) { return VerifyWithoutReplacement(draw_distinct(c), p, q, c); });
  expect("k-seq", [&](Coin& c) { return VerifyKSeq(draw(c), p, q, KSeqGamma(p, q, k), c); });
  // Any distinct children will do here.
  expect("in turn", [&](Coin& c) { return VerifyInTurn(draw_distinct(c), p, c); });
  expect("one coin", [&](Coin& c) { return VerifyOneCoin(draw_distinct(c), p, c); });
}

TEST(Adversarial, RandomAndSparseLaws) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const size_t vocab = 2 + seed % 3;
    for (int k = 0; k <= 3; ++k) {
      ExpectEveryRuleExact(RandomLaw(seed, vocab, seed % 2 == 1),
                           RandomLaw(seed + 1000, vocab, seed % 3 == 1), k);
    }
  }
}

TEST(Adversarial, DisjointEqualOneHotAndMoreChildrenThanTokens) {
  const std::vector<double> p = {0.5, 0.3, 0.2, 0.0};
  for (int k = 0; k <= 5; ++k) {
    ExpectEveryRuleExact(p, {0, 0, 0, 1}, k);                 // disjoint, one-hot on an impossible token
    ExpectEveryRuleExact(p, p, k);                            // all accepted
    ExpectEveryRuleExact(p, {0, 1, 0, 0}, k);                 // one-hot
    ExpectEveryRuleExact(p, {0, 0.6, 0.4, 0}, k);             // without p's argmax
    ExpectEveryRuleExact({0, 0, 1, 0}, {.2, .2, .2, .4}, k);  // p is one-hot
  }
}

TEST(Adversarial, AnImpossibleTokenIsNeverAccepted) {
  const std::vector<double> p = {0.5, 0.5, 0.0};
  const std::vector<int32_t> children = {2};
  EXPECT_EQ(Enumerate([&](Coin& c) { return VerifyInTurn(children, p, c); }, 3).acceptance, 0.0);
  EXPECT_EQ(Enumerate([&](Coin& c) { return VerifyOneCoin(children, p, c); }, 3).acceptance, 0.0);
  const std::vector<double> q = {0.0, 0.0, 1.0};
  EXPECT_EQ(Enumerate([&](Coin& c) { return VerifyIndependent(children, p, q, c); }, 3).acceptance, 0.0);
}

TEST(AdversarialDeathTest, AProposalTheDraftCannotHaveMadeIsABug) {
  const std::vector<double> p = {0.5, 0.5}, q = {1.0, 0.0};
  const std::vector<int32_t> children = {1};
  RngCoin coin({.seed = 1}, 0);
  EXPECT_DEATH(static_cast<void>(VerifyIndependent(children, p, q, coin)), "q");
  EXPECT_DEATH(static_cast<void>(VerifyKSeq(children, p, q, 1.0, coin)), "q");
}

TEST(RngCoin, FlipsAndDrawsAtTheEdges) {
  RngCoin coin({.seed = 3}, 0);
  const std::vector<double> weights = {0.0, 0.0, 1e-300, 0.0};
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(coin.Flip(0.0));
    EXPECT_TRUE(coin.Flip(1.0));
    EXPECT_EQ(coin.Draw(weights), 2);
  }
}

TEST(RngCoinDeathTest, NothingToDrawFrom) {
  RngCoin coin({.seed = 3}, 0);
  const std::vector<double> none = {0.0, 0.0};
  EXPECT_DEATH(static_cast<void>(coin.Draw(none)), "drawn");
}

TEST(ChiSquare, KnownQuantiles) {
  // Upper tail points of the chi-square distribution, from tables.
  EXPECT_NEAR(UpperGamma(5 / 2.0, 11.0705 / 2), 0.05, 1e-6);
  EXPECT_NEAR(UpperGamma(1 / 2.0, 10.8276 / 2), 0.001, 1e-7);
  EXPECT_NEAR(UpperGamma(63 / 2.0, 103.442 / 2), 0.001, 1e-6);
  EXPECT_NEAR(UpperGamma(1.0, 3.0), std::exp(-3.0), 1e-14);
  EXPECT_EQ(ChiSquarePValue({5, 1}, {1.0, 0.0}), 0.0);
  EXPECT_NEAR(ChiSquarePValue({60, 40}, {0.5, 0.5}), 0.0455, 1e-4);
}

}  // namespace
}  // namespace longspec::testing
