// SPDX-License-Identifier: Apache-2.0
//
// One-node experiments on the fixture of research 8.7: draft some children, verify them, commit one token.
// The exact rules, and the rules that look right and are not (8.6), which exist here only, as negative
// controls.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "verify/testing/rules.h"

namespace longspec::testing {

inline const std::vector<double> kP = {.36, .28, .18, .10, .06, .02};
inline const std::vector<double> kQ = {.20, .42, .08, .15, .10, .05};
inline const std::vector<int32_t> kTop3OfQ = {1, 0, 3};

using NodeRule = std::function<NodeVerdict(Coin&)>;

// Samples at which a Monte Carlo test (alpha 1e-6, 5 degrees of freedom) rejects the wrong rules with
// certainty: 80 over the effect per sample. Two are wrong by so little that they, and the exact rules they
// resemble, need more.
inline constexpr uint64_t kSamples = 8000;
inline constexpr uint64_t kSamplesForUnconditionalQ = 80000;
inline constexpr uint64_t kSamplesForDuplicates = 240000;

struct ExactCase {
  std::string name;
  NodeRule rule;
  double acceptance;
  double tolerance;  // half a unit of the last printed digit
  uint64_t samples = kSamples;
};

struct WrongCase {
  std::string name;
  NodeRule rule;
  double tv, chi2;  // as printed
  double chi2_tolerance;
  uint64_t samples = kSamples;
};

inline std::vector<int32_t> DrawIndependent(int k, Coin& coin) {
  std::vector<int32_t> children;
  for (int i = 0; i < k; ++i) children.push_back(coin.Draw(kQ));
  return children;
}

inline std::vector<int32_t> DrawWithoutReplacement(int k, Coin& coin) {
  std::vector<int32_t> children;
  std::vector<double> q = kQ;
  for (int i = 0; i < k; ++i) {
    children.push_back(coin.Draw(q));
    q[static_cast<size_t>(children.back())] = 0;
  }
  return children;
}

inline std::vector<int32_t> TopOfQ(int k) { return {kTop3OfQ.begin(), kTop3OfQ.begin() + k}; }

inline NodeVerdict ChainOfOne(Coin& coin) {
  const int32_t x = coin.Draw(kQ);
  const Dense p[] = {kP, kP}, q[] = {kQ};
  // Only the first committed token matters here: the drafted one, or its correction.
  const ChainVerdict verdict = VerifyChain({&x, 1}, p, q, coin);
  return verdict.n_accepted == 1 ? NodeVerdict{0, x} : NodeVerdict{-1, verdict.token};
}

inline std::vector<ExactCase> ExactCases() {
  std::vector<ExactCase> cases = {{"chain with residual", ChainOfOne, .74, 1e-12}};
  const auto add = [&](std::string name, int k, double acceptance, double tolerance, auto rule) {
    cases.push_back({name + " k=" + std::to_string(k), [k, rule](Coin& coin) { return rule(k, coin); },
                     acceptance, tolerance});
  };
  const auto independent = [](int k, Coin& c) { return VerifyIndependent(DrawIndependent(k, c), kP, kQ, c); };
  add("independent", 2, .81280, 5e-6, independent);
  add("independent", 3, .86522, 5e-6, independent);
  cases.back().samples = kSamplesForDuplicates;
  const auto without = [](int k, Coin& c) {
    return VerifyWithoutReplacement(DrawWithoutReplacement(k, c), kP, kQ, c);
  };
  add("without replacement", 2, .84534, 5e-6, without);
  add("without replacement", 3, .93250, 5e-6, without);
  cases.back().samples = kSamplesForUnconditionalQ;
  const double gamma[] = {KSeqGamma(kP, kQ, 2), KSeqGamma(kP, kQ, 3)};
  const auto k_seq = [=](int k, Coin& c) {
    return VerifyKSeq(DrawIndependent(k, c), kP, kQ, gamma[k - 2], c);
  };
  add("K-SEQ", 2, .8489, 5e-5, k_seq);
  add("K-SEQ", 3, .9162, 5e-5, k_seq);
  const auto in_turn = [](int k, Coin& c) { return VerifyInTurn(TopOfQ(k), kP, c); };
  add("in turn", 1, .28, 1e-12, in_turn);
  add("in turn", 2, .64, 1e-12, in_turn);
  add("in turn", 3, .74, 1e-12, in_turn);
  add("one coin", 3, .74, 1e-12, [](int k, Coin& c) { return VerifyOneCoin(TopOfQ(k), kP, c); });
  return cases;
}

// --- Negative controls. ---

inline double RatioOf(int32_t x) { return kP[static_cast<size_t>(x)] / kQ[static_cast<size_t>(x)]; }

inline NodeVerdict TargetOnRejection(int32_t x, Coin& coin) {
  if (coin.Flip(RatioOf(x))) return {0, x};
  return {-1, coin.Draw(kP)};
}

inline NodeVerdict DuplicatesDropped(Coin& coin) {
  std::vector<int32_t> distinct;
  for (const int32_t x : DrawIndependent(3, coin)) {
    if (std::find(distinct.begin(), distinct.end(), x) == distinct.end()) distinct.push_back(x);
  }
  return VerifyIndependent(distinct, kP, kQ, coin);
}

inline NodeVerdict TopAsSamplesInRandomOrder(Coin& coin) {
  std::vector<int32_t> left = kTop3OfQ, order;
  while (!left.empty()) {
    const auto i = coin.Draw(std::vector<double>(left.size(), 1.0));
    order.push_back(left[static_cast<size_t>(i)]);
    left.erase(left.begin() + i);
  }
  return VerifyIndependent(order, kP, kQ, coin);
}

// An own sample per path, three distinct leaves: the first path that matches wins.
inline NodeVerdict PerPath(bool keep_first, Coin& coin) {
  int32_t own[3];
  for (int32_t& x : own) x = coin.Draw(kP);
  for (size_t i = 0; i < 3; ++i) {
    if (own[i] == kTop3OfQ[i]) return {static_cast<int>(i), own[i]};
  }
  return {-1, keep_first ? own[0] : coin.Draw(kP)};
}

// The same with one child that n_leaves paths share.
inline NodeVerdict SharedByPaths(int n_leaves, bool keep_first, Coin& coin) {
  const int32_t first = coin.Draw(kP);
  bool match = first == 1;
  for (int i = 1; i < n_leaves && !match; ++i) match = coin.Flip(kP[1]);
  if (match) return {0, 1};
  return {-1, keep_first ? first : coin.Draw(kP)};
}

// SGLang's tree kernel with thresholds below one.
inline NodeVerdict Thresholds(double accumulated, double single, Coin& coin) {
  std::vector<double> outcomes, left = kP;
  double sum = 0, reached = 0;
  for (const int32_t x : kTop3OfQ) {
    const auto t = static_cast<size_t>(x);
    sum += kP[t];
    const double limit = kP[t] >= single ? 1.0 : std::min(1.0, sum / accumulated);
    outcomes.push_back(std::max(0.0, limit - reached));
    reached = std::max(reached, limit);
    left[t] = 0;
  }
  outcomes.push_back(1 - reached);
  const auto drawn = static_cast<size_t>(coin.Draw(outcomes));
  if (drawn < 3) return {static_cast<int>(drawn), kTop3OfQ[drawn]};
  return {-1, coin.Draw(left)};
}

inline NodeVerdict Typical(double epsilon, double delta, Coin& coin) {
  double entropy = 0;
  for (const double p : kP) entropy -= p * std::log(p);
  if (kP[1] > std::min(epsilon, delta * std::exp(-entropy))) return {0, 1};
  return {-1, coin.Draw(kP)};
}

// A sampled token thrown away because its q is low, and plain decoding in its place.
inline NodeVerdict LowQDropped(double threshold, Coin& coin) {
  const int32_t x = coin.Draw(kQ);
  if (kQ[static_cast<size_t>(x)] < threshold) return {-1, coin.Draw(kP)};
  return VerifyIndependent({&x, 1}, kP, kQ, coin);
}

inline std::vector<WrongCase> WrongCases() {
  const auto top3 = [](Coin& c) { return VerifyIndependent(kTop3OfQ, kP, kQ, c); };
  return {
      {"chain, p on rejection", [](Coin& c) { return TargetOnRejection(c.Draw(kQ), c); }, .11960, .05907,
       5e-6},
      {"argmax draft, softmax q", [](Coin& c) { return VerifyIndependent(TopOfQ(1), kP, kQ, c); }, .38667,
       .7955, 5e-5},
      {"argmax draft, p on rejection", [](Coin& c) { return TargetOnRejection(1, c); }, .48000, 1.1429, 5e-5},
      {"independent after dropping duplicates", DuplicatesDropped, .00666, .00037, 5e-6,
       kSamplesForDuplicates},
      {"without replacement, unconditional q",
       [](Coin& c) { return VerifyIndependent(DrawWithoutReplacement(3, c), kP, kQ, c); }, .01284, .00137,
       5e-6, kSamplesForUnconditionalQ},
      {"top 3 as q-samples", top3, .38667, .8959, 5e-5},
      {"top 3 as q-samples, random order", TopAsSamplesInRandomOrder, .31778, .5275, 5e-5},
      {"per path, fresh", [](Coin& c) { return PerPath(false, c); }, .16462, .1453, 5e-5},
      {"per path, first kept", [](Coin& c) { return PerPath(true, c); }, .11024, .0784, 5e-5},
      {"4 paths, fresh", [](Coin& c) { return SharedByPaths(4, false, c); }, .52651, 1.3751, 5e-5},
      {"9 paths, fresh", [](Coin& c) { return SharedByPaths(9, false, c); }, .68256, 2.3110, 5e-5},
      {"4 paths, own kept", [](Coin& c) { return SharedByPaths(4, true, c); }, .45126, 1.0101, 5e-5},
      {"9 paths, own kept", [](Coin& c) { return SharedByPaths(9, true, c); }, .66800, 2.2134, 5e-5},
      {"one coin, accumulated .9", [](Coin& c) { return Thresholds(.9, 2.0, c); }, .08222, .0351, 5e-5},
      {"one coin, single .25", [](Coin& c) { return Thresholds(1.0, .25, c); }, .72000, 2.571, 5e-4},
      {"typical", [](Coin& c) { return Typical(.09, .3, c); }, .72000, 2.571, 5e-4},
      // Own arithmetic: min(p, q) is scaled by 1.26, the negative rest cut off and what is left renormalised.
      {"K-SEQ, gamma 1, k=2", [](Coin& c) { return VerifyKSeq(DrawIndependent(2, c), kP, kQ, 1.0, c); },
       .11960, .05855, 5e-6},
      // Research 8.1 prints the distance of these three only.
      {"low q dropped, .06", [](Coin& c) { return LowQDropped(.06, c); }, .022, -1, 0},
      {"low q dropped, .10", [](Coin& c) { return LowQDropped(.10, c); }, .086, -1, 0},
      {"low q dropped, .12", [](Coin& c) { return LowQDropped(.12, c); }, .127, -1, 0},
  };
}

}  // namespace longspec::testing
