// SPDX-License-Identifier: Apache-2.0
//
// Toy languages of a few tokens: a law for every prefix, and hence an exact joint law of the next tokens,
// which the law of whatever a verification rule commits is held against.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/counter_rng.h"
#include "verify/testing/enumerating_coin.h"

namespace longspec::testing {

inline constexpr size_t kVocab = 3;

// A random law for every prefix. Remembers those it was asked for; not thread-safe.
class Language {
 public:
  Language(uint64_t seed, double sharpness)
      : rng_{.seed = seed, .purpose = RngPurpose::kTest}, sharpness_(sharpness) {}

  const std::vector<double>& After(std::span<const int32_t> prefix) const {
    uint64_t key = 1;
    for (const int32_t token : prefix) key = key * 7 + static_cast<uint64_t>(token) + 1;
    std::vector<double>& law = known_[key];
    if (!law.empty()) return law;
    law.resize(kVocab);
    for (uint32_t v = 0; v < kVocab; ++v) law[v] = std::exp(sharpness_ * rng_.Uniform(key, v));
    const double total = std::accumulate(law.begin(), law.end(), 0.0);
    for (double& x : law) x /= total;
    return law;
  }

 private:
  RngStream rng_;
  double sharpness_;
  mutable std::unordered_map<uint64_t, std::vector<double>> known_;
};

// The number of a text among those of its length.
inline size_t Cell(std::span<const int32_t> tokens) {
  size_t cell = 0;
  for (const int32_t token : tokens) cell = cell * kVocab + static_cast<size_t>(token);
  return cell;
}

inline size_t NumCells(int n_tokens) {
  size_t n = 1;
  for (int i = 0; i < n_tokens; ++i) n *= kVocab;
  return n;
}

// The law of the first n tokens; after(prefix) is that of the next one.
template <typename After>
std::vector<double> JointLawOf(const After& after, int n) {
  std::vector<double> joint(NumCells(n), 0.0);
  const auto draw = [&](Coin& coin) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(coin.Draw(after(tokens)));
    return tokens;
  };
  EnumeratingCoin::ForEachBranch(draw, [&](const auto& tokens, double w) { joint[Cell(tokens)] += w; });
  return joint;
}

inline std::vector<double> JointLaw(const Language& p, int n) {
  return JointLawOf([&](std::span<const int32_t> prefix) { return p.After(prefix); }, n);
}

inline double TotalVariation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / 2;
}

}  // namespace longspec::testing
