// SPDX-License-Identifier: Apache-2.0
//
// Chains: the joint law of the committed tokens, by enumeration over drafts and decisions.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "verify/testing/chi_square.h"
#include "verify/testing/enumerating_coin.h"
#include "verify/testing/language.h"
#include "verify/testing/rules.h"

namespace longspec::testing {
namespace {

using Rule = ChainVerdict (*)(std::span<const int32_t>, std::span<const Dense>, std::span<const Dense>,
                              Coin&);

struct Outcome {
  std::vector<int32_t> tokens;  // gamma + 1 of them
  int n_accepted;
};

// Drafts gamma tokens, verifies them, and completes what was committed to gamma + 1 tokens by plain decoding.
Outcome Round(const Language& p, const Language& q, int gamma, Rule rule, Coin& coin) {
  std::vector<int32_t> tokens;
  std::vector<std::vector<double>> p_rows, q_rows;
  for (int i = 0; i < gamma; ++i) {
    p_rows.push_back(p.After(tokens));
    q_rows.push_back(q.After(tokens));
    tokens.push_back(coin.Draw(q_rows.back()));
  }
  p_rows.push_back(p.After(tokens));
  const std::vector<Dense> p_views(p_rows.begin(), p_rows.end()), q_views(q_rows.begin(), q_rows.end());
  const ChainVerdict verdict = rule(tokens, p_views, q_views, coin);
  tokens.resize(static_cast<size_t>(verdict.n_accepted));
  tokens.push_back(verdict.token);
  while (static_cast<int>(tokens.size()) <= gamma) tokens.push_back(coin.Draw(p.After(tokens)));
  return {tokens, verdict.n_accepted};
}

struct Enumerated {
  double distance = 0;  // of the joint law from p's
  double accepted = 0;  // expected
};

Enumerated Enumerate(const Language& p, const Language& q, int gamma, Rule rule) {
  std::vector<double> joint(NumCells(gamma + 1), 0.0);
  Enumerated result;
  EnumeratingCoin::ForEachBranch([&](Coin& coin) { return Round(p, q, gamma, rule, coin); },
                                 [&](const Outcome& outcome, double w) {
                                   joint[Cell(outcome.tokens)] += w;
                                   result.accepted += w * outcome.n_accepted;
                                 });
  result.distance = TotalVariation(joint, JointLaw(p, gamma + 1));
  return result;
}

TEST(Chain, JointLawByEnumeration) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Language p(seed, 3.0), q(seed + 100, 2.0);
    for (int gamma = 0; gamma <= 3; ++gamma) {
      EXPECT_LT(Enumerate(p, q, gamma, VerifyChain).distance, 1e-12) << seed << " " << gamma;
    }
  }
}

TEST(Block, JointLawByEnumerationAndNeverFewerTokens) {
  double gained = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Language p(seed, 3.0), q(seed + 100, 2.0);
    for (int gamma = 0; gamma <= 3; ++gamma) {
      const Enumerated block = Enumerate(p, q, gamma, VerifyBlock);
      const Enumerated chain = Enumerate(p, q, gamma, VerifyChain);
      EXPECT_LT(block.distance, 1e-12) << seed << " " << gamma;
      EXPECT_GE(block.accepted, chain.accepted - 1e-12) << seed << " " << gamma;
      if (gamma < 2) {
        EXPECT_NEAR(block.accepted, chain.accepted, 1e-12);
      }
      gained += block.accepted - chain.accepted;
    }
  }
  EXPECT_GT(gained, 0.1);
}

TEST(Chain, EqualLawsAcceptEverything) {
  const Language p(1, 3.0);
  for (const Rule rule : {&VerifyChain, &VerifyBlock}) {
    const Enumerated equal = Enumerate(p, p, 3, rule);
    EXPECT_NEAR(equal.accepted, 3.0, 1e-12);
    EXPECT_LT(equal.distance, 1e-12);
  }
}

TEST(Chain, AcceptsOneMinusTheDistanceOfTheLaws) {
  const Language p(5, 3.0), q(6, 3.0);
  const auto p_row = p.After({}), q_row = q.After({});
  double overlap = 0;
  for (size_t v = 0; v < kVocab; ++v) overlap += std::min(p_row[v], q_row[v]);
  EXPECT_NEAR(Enumerate(p, q, 1, VerifyChain).accepted, overlap, 1e-12);
}

// What TriForce's inner level and others do: the target itself in place of the residual.
ChainVerdict TargetOnRejection(std::span<const int32_t> tokens, std::span<const Dense> p,
                               std::span<const Dense> q, Coin& coin) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto t = static_cast<size_t>(tokens[i]);
    if (!coin.Flip(p[i][t] / q[i][t])) return {static_cast<int>(i), coin.Draw(p[i])};
  }
  return {static_cast<int>(tokens.size()), coin.Draw(p.back())};
}

// The bonus token from other probabilities than the processed ones (EAGLE-1, Clover-2): here, a flattened
// law.
ChainVerdict RawBonus(std::span<const int32_t> tokens, std::span<const Dense> p, std::span<const Dense> q,
                      Coin& coin) {
  std::vector<double> raw(p.back().begin(), p.back().end());
  for (double& x : raw) x = std::sqrt(x);
  std::vector<Dense> rows(p.begin(), p.end());
  rows.back() = raw;
  return VerifyChain(tokens, rows, q, coin);
}

double SampledPValue(Rule rule) {
  const Language p(11, 3.0), q(12, 2.0);
  const RngStream stream{.seed = 77, .purpose = RngPurpose::kTest};
  std::vector<int64_t> counts(27, 0);
  for (uint64_t i = 0; i < 10000; ++i) {
    RngCoin coin(stream, i);
    ++counts[Cell(Round(p, q, 2, rule, coin).tokens)];
  }
  return ChiSquarePValue(counts, JointLaw(p, 3));
}

TEST(Chain, MonteCarloAcceptsTheExactAndRejectsTheWrong) {
  EXPECT_GT(SampledPValue(VerifyChain), 1e-6);
  EXPECT_GT(SampledPValue(VerifyBlock), 1e-6);
  EXPECT_LT(SampledPValue(TargetOnRejection), 1e-6);
  EXPECT_LT(SampledPValue(RawBonus), 1e-6);
}

TEST(Chain, TheControlsAreWrongByEnumerationToo) {
  const Language p(11, 3.0), q(12, 2.0);
  EXPECT_GT(Enumerate(p, q, 2, TargetOnRejection).distance, 0.01);
  EXPECT_GT(Enumerate(p, q, 2, RawBonus).distance, 0.01);
}

TEST(Residual, NothingLeftMeansTheTarget) {
  const std::vector<double> p = {0.25, 0.75};
  EXPECT_EQ(Residual(p, p), p);
  EXPECT_EQ(Residual(p, std::vector<double>{0.5, 0.5}), (std::vector<double>{0.0, 0.25}));
}

TEST(ChainDeathTest, ShapesMustAgree) {
  const std::vector<double> row = {1.0};
  const std::vector<Dense> one = {row};
  const std::vector<int32_t> tokens = {0};
  RngCoin coin({.seed = 1}, 0);
  EXPECT_DEATH(static_cast<void>(VerifyChain(tokens, one, one, coin)), "size");
  EXPECT_DEATH(static_cast<void>(VerifyBlock(tokens, one, one, coin)), "size");
}

}  // namespace
}  // namespace longspec::testing
