// SPDX-License-Identifier: Apache-2.0
//
// Gumbel-max sampling of every table against the reference, which computes every token's key; and the
// reference against the distribution it samples.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/dice.h"
#include "base/testing/floats.h"
#include "kernels/reference/reference.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "kernels/testing/tables_under_test.h"

namespace longspec::kernels::testing {
namespace {

using longspec::testing::kInfinity;
using longspec::testing::kNan;
using GumbelTest = TableTest;
LONGSPEC_FOR_TABLES(GumbelTest, TablesThatDiffer(&KernelTable::gumbel_argmax));

constexpr double kTemperatures[] = {1e-6, 1e-3, 0.1, 0.5, 0.7, 1.0, 1.3, 2.0, 10.0, 1e3, 1e6};

GumbelArgs ArgsOf(const std::vector<float>& logits, double temperature, uint32_t seed) {
  float largest = -kInfinity;
  for (const float l : logits) largest = l > largest ? l : largest;
  return {.logits = logits.data(),
          .n = static_cast<int>(logits.size()),
          .largest = largest,
          .temperature = temperature,
          .dice = {seed, 1}};
}

// ---- Rows

float Normal(Random& random, float sigma) {
  const double u = (random.Bits() + 0.5) * 0x1.0p-32, v = (random.Bits() + 0.5) * 0x1.0p-32;
  return sigma * static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

using Row = std::vector<float> (*)(int n, Random& random);

template <typename F>
std::vector<float> RowOf(int n, const F& logit) {
  std::vector<float> row;
  for (int i = 0; i < n; ++i) row.push_back(logit(i));
  return row;
}

std::vector<float> Real(int n, Random& random) {
  return RowOf(n, [&](int) { return Normal(random, 3.0F); });
}
std::vector<float> Flat(int n, Random& random) {
  const float all = random.Float(20.0F);
  return RowOf(n, [&](int) { return all; });
}
std::vector<float> Peaky(int n, Random& random) {
  const int peak = random.Below(n);
  return RowOf(n, [&](int i) { return (i == peak ? 25.0F : 0.0F) + Normal(random, 3.0F); });
}
std::vector<float> FewValues(int n, Random& random) {
  return RowOf(n, [&](int) { return static_cast<float>(random.Below(4)); });
}
std::vector<float> Huge(int n, Random& random) {
  return RowOf(n, [&](int) { return random.Float(3e38F); });
}
std::vector<float> Tiny(int n, Random& random) {
  return RowOf(n, [&](int) { return random.Float(1e-40F); });
}
std::vector<float> FarFromZero(int n, Random& random) {
  return RowOf(n, [&](int) { return 1e6F + Normal(random, 3.0F); });
}
// Like a grammar's mask.
std::vector<float> Masked(int n, Random& random) {
  const int allowed = random.Below(n);
  return RowOf(
      n, [&](int i) { return i == allowed || random.Below(5) == 0 ? Normal(random, 3.0F) : -kInfinity; });
}
std::vector<float> WithNaN(int n, Random& random) {
  const int number = random.Below(n);
  return RowOf(n, [&](int i) { return i == number || random.Below(3) != 0 ? Normal(random, 3.0F) : kNan; });
}
std::vector<float> WithInfinity(int n, Random& random) {
  std::vector<float> row = WithNaN(n, random);
  for (int i = 0; i < 3; ++i) row[static_cast<size_t>(random.Below(n))] = kInfinity;
  return row;
}

constexpr Row kKindsOfRow[] = {Real, Flat,        Peaky,  FewValues, Huge,
                               Tiny, FarFromZero, Masked, WithNaN,   WithInfinity};

TEST_P(GumbelTest, EqualsTheReferenceForEveryLength) {
  Random random(1);
  for (int n = 1; n <= 200; ++n) {
    for (const Row make : kKindsOfRow) {
      const std::vector<float> row = make(n, random);
      for (const double temperature : kTemperatures) {
        const GumbelArgs a = ArgsOf(row, temperature, random.Bits());
        ASSERT_EQ(table().gumbel_argmax(a), kReferenceTable.gumbel_argmax(a)) << n << " at " << temperature;
      }
    }
  }
}

TEST_P(GumbelTest, EqualsTheReferenceForVocabularies) {
  Random random(2);
  for (const int n : {1000, 4095, 32003, 49152}) {
    for (const Row make : kKindsOfRow) {
      const std::vector<float> row = make(n, random);
      for (const double temperature : {1e-6, 0.3, 1.0, 5.0, 1e6}) {
        const GumbelArgs a = ArgsOf(row, temperature, random.Bits());
        ASSERT_EQ(table().gumbel_argmax(a), kReferenceTable.gumbel_argmax(a)) << n << " at " << temperature;
      }
    }
  }
}

TEST_P(GumbelTest, EqualsTheReferenceForManySeeds) {
  Random random(3);
  const std::vector<float> real = Real(1000, random), flat(1000, 0.0F);
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    for (const std::vector<float>* row : {&real, &flat}) {
      const GumbelArgs a = ArgsOf(*row, 1.0, seed);
      ASSERT_EQ(table().gumbel_argmax(a), kReferenceTable.gumbel_argmax(a)) << seed;
    }
  }
}

// Beyond what a float can hold of 1 / temperature.
TEST_P(GumbelTest, TakesAnyTemperature) {
  Random random(4);
  for (const Row make : kKindsOfRow) {
    const std::vector<float> row = make(150, random);
    for (const double temperature : {1e-300, 1e-40, 0x1p-101, 0x1p-100, 0x1p100, 0x1p101, 1e40, 1e300}) {
      const GumbelArgs a = ArgsOf(row, temperature, random.Bits());
      ASSERT_EQ(table().gumbel_argmax(a), kReferenceTable.gumbel_argmax(a)) << temperature;
    }
  }
}

// ---- Keys that are equal, or nearly so

// Two tokens of a row without others.
struct Pair {
  int low, high;  // tokens
  float low_logit, high_logit;
  double temperature;
  uint32_t dice[2];
};

std::vector<float> RowOfPair(const Pair& p) {
  std::vector<float> row(static_cast<size_t>(p.high) + 1, -kInfinity);
  row[static_cast<size_t>(p.low)] = p.low_logit;
  row[static_cast<size_t>(p.high)] = p.high_logit;
  return row;
}

GumbelArgs ArgsOfPair(const Pair& p, const std::vector<float>& row) {
  GumbelArgs a = ArgsOf(row, p.temperature, p.dice[0]);
  a.dice[1] = p.dice[1];
  return a;
}

double Gumbel(const uint32_t (&dice)[2], int token) { return GumbelOf(DiceBits({dice[0], dice[1]}, token)); }

// Tokens of equal bits: of the first 49,152 there are two for every fourth position or so.
std::vector<Pair> TiesOfBits() {
  std::vector<Pair> ties;
  for (uint32_t seed = 0; ties.empty(); ++seed) {
    std::vector<std::pair<uint32_t, int>> bits;
    for (int token = 0; token < 49152; ++token) bits.emplace_back(DiceBits({seed, 0}, token), token);
    std::sort(bits.begin(), bits.end());
    for (size_t i = 1; i < bits.size(); ++i) {
      if (bits[i].first == bits[i - 1].first) {
        ties.push_back({bits[i - 1].second, bits[i].second, 0.5F, 0.5F, 1.0, {seed, 0}});
      }
    }
  }
  return ties;
}

// Position keys and tokens whose -log(u) is within a part in 10^4 both of a power of two and of 1 - u: there
// a test by 1 - u and by a chord of the exponential has no slack of its own. The last two's bits are all
// ones. Found by trying.
struct Sharp {
  uint32_t dice[2];
  int token;
};
constexpr Sharp kSharp[] = {
    {{72068, 1}, 235},   {{80780, 1}, 171},   {{191099, 1}, 206},   {{486488, 1}, 172},  {{547520, 1}, 33},
    {{663344, 1}, 0},    {{1204076, 1}, 165}, {{1290274, 1}, 249},  {{1351839, 1}, 241}, {{1365936, 1}, 131},
    {{1389916, 1}, 144}, {{1402029, 1}, 161}, {{31524380, 1}, 150}, {{32018899, 1}, 121}};

// Another token has the largest logit, and the temperature is such that the keys of the two differ by about
// `by`, or are equal where that is 0.
std::vector<Pair> NearTies(double by) {
  std::vector<Pair> pairs;
  for (const Sharp& s : kSharp) {
    const double sharp = Gumbel(s.dice, s.token);
    for (int other = 0; other < 320; other += 2) {
      if (other == s.token) continue;
      const double rise =
          Gumbel(s.dice, other) - sharp;  // what the sharp one's logit may lie below the other's
      if (!(rise + by < -1e-3)) continue;
      double temperature = -1.0 / (rise + by);
      if (by == 0) {
        for (int i = 0; i < 8; ++i) temperature = std::nextafter(temperature, 0.0);
        for (int i = 0; i < 16 && -1.0 / temperature + sharp != Gumbel(s.dice, other); ++i) {
          temperature = std::nextafter(temperature, kInfinity);
        }
        if (-1.0 / temperature + sharp != Gumbel(s.dice, other)) continue;
      }
      const bool sharp_first = s.token < other;
      pairs.push_back({std::min(s.token, other),
                       std::max(s.token, other),
                       sharp_first ? -1.0F : 0.0F,
                       sharp_first ? 0.0F : -1.0F,
                       temperature,
                       {s.dice[0], s.dice[1]}});
    }
  }
  return pairs;
}

TEST_P(GumbelTest, EqualKeysGoToTheLowerToken) {
  static const std::vector<Pair> of_bits = TiesOfBits();
  for (const Pair& p : of_bits) {
    const std::vector<float> row = RowOfPair(p);
    EXPECT_EQ(table().gumbel_argmax(ArgsOfPair(p, row)), p.low);
  }
  const std::vector<Pair> ties = NearTies(0);
  ASSERT_GT(ties.size(), 150U);
  for (const Pair& p : ties) {
    const std::vector<float> row = RowOfPair(p);
    const GumbelArgs a = ArgsOfPair(p, row);
    ASSERT_EQ(reference::GumbelKey(a, p.low), reference::GumbelKey(a, p.high));
    ASSERT_EQ(table().gumbel_argmax(a), p.low) << p.low << " and " << p.high << " at " << p.temperature;
  }
}

TEST_P(GumbelTest, NearlyEqualKeysAreToldApart) {
  for (const double by : {-1e-4, -1e-13, 1e-13, 1e-7, 1e-5, 1e-3}) {
    for (const Pair& p : NearTies(by)) {
      const std::vector<float> row = RowOfPair(p);
      const GumbelArgs a = ArgsOfPair(p, row);
      ASSERT_EQ(table().gumbel_argmax(a), kReferenceTable.gumbel_argmax(a))
          << p.low << " and " << p.high << " at " << p.temperature << ", " << by << " apart";
    }
  }
}

// ---- Whether these cases tell a wrong search

struct Rule {
  double margin = 1e-3;   // of thresholds, in powers of two
  bool reversed = false;  // discards what it should keep
  bool ties_to_lower = true;
};

// The search of cpu/gumbel_search.h, one token at a time.
int Search(const GumbelArgs& a, const Rule& rule) {
  int best = 0;
  while (a.logits[best] != a.largest) ++best;
  double largest = reference::GumbelKey(a, best);
  for (int token = 0; token < a.n; ++token) {
    const double y = (double{a.logits[token]} - double{a.largest}) / a.temperature;
    const double t = (y - largest) / 0.693147180559945309 + rule.margin;
    const double chord =
        std::ldexp(1.0 + t - std::floor(t), std::isfinite(t) ? static_cast<int>(std::floor(t)) : -1000);
    const double w = (0xFFFFFFFFU - DiceBits({a.dice[0], a.dice[1]}, token)) * 0x1.0p-32;
    if ((w >= chord) != rule.reversed) continue;
    const double key = reference::GumbelKey(a, token);
    const bool wins = key > largest || (rule.ties_to_lower && key == largest && token < best);
    if (!wins) continue;
    largest = key;
    best = token;
  }
  return best;
}

int WrongOnes(double by, const Rule& rule) {
  int wrong = 0;
  for (const Pair& p : NearTies(by)) {
    const std::vector<float> row = RowOfPair(p);
    const GumbelArgs a = ArgsOfPair(p, row);
    wrong += Search(a, rule) != kReferenceTable.gumbel_argmax(a) ? 1 : 0;
  }
  return wrong;
}

TEST(GumbelCasesTest, TellAWrongSearch) {
  EXPECT_EQ(WrongOnes(0, {}), 0);
  EXPECT_EQ(WrongOnes(1e-7, {}), 0);
  EXPECT_GT(WrongOnes(0, {.margin = -1e-3}), 0);
  EXPECT_GT(WrongOnes(1e-7, {.margin = -1e-3}), 0);
  EXPECT_GT(WrongOnes(1e-7, {.margin = -1e-4}), 0);
  EXPECT_GT(WrongOnes(0, {.ties_to_lower = false}), 0);
  EXPECT_GT(WrongOnes(1e-3, {.reversed = true}), 0);
}

// ---- The reference

TEST(GumbelReferenceTest, AnyTokenIsDrawnAsOftenAsItsProbability) {
  const std::vector<float> logits = {0.0F, -1.0F, -kInfinity, 1.0F, kNan, -2.0F, 1.0F, 0.5F};
  constexpr int kDraws = 100000;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double sum = 0;
    std::vector<double> p;
    for (const float l : logits) p.push_back(std::isnan(l) ? 0.0 : std::exp(double{l} / temperature));
    for (const double weight : p) sum += weight;
    std::vector<int> count(logits.size());
    for (uint32_t seed = 0; seed < kDraws; ++seed) {
      ++count[static_cast<size_t>(kReferenceTable.gumbel_argmax(ArgsOf(logits, temperature, seed)))];
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = kDraws * p[i] / sum;
      EXPECT_NEAR(count[i], expected, 4.5 * std::sqrt(expected * (1 - p[i] / sum)))
          << i << " at " << temperature;
    }
  }
}

TEST(GumbelReferenceTest, KeysAreThoseOfTheDice) {
  const std::vector<float> logits = {1.5F, -2.25F, 4.0F};
  const Dice dice({.seed = 5}, 6);
  GumbelArgs a = ArgsOf(logits, 0.5, dice.key()[0]);
  a.dice[1] = dice.key()[1];
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(reference::GumbelKey(a, i),
              (double{logits[static_cast<size_t>(i)]} - 4.0) / 0.5 + dice.Gumbel(i));
  }
}

TEST(GumbelReferenceTest, NeitherNaNNorMinusInfinityIsDrawn) {
  const std::vector<float> logits = {kNan, -kInfinity, 3.0F, kNan, -kInfinity};
  for (uint32_t seed = 0; seed < 100; ++seed) {
    for (const double temperature : {1e-6, 1.0, 1e6}) {
      EXPECT_EQ(kReferenceTable.gumbel_argmax(ArgsOf(logits, temperature, seed)), 2);
    }
  }
}

}  // namespace
}  // namespace longspec::kernels::testing
