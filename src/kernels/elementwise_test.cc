// SPDX-License-Identifier: Apache-2.0
//
// Element-wise operations, norms and searches of every table against the reference, and the reference against
// the mathematics it stands for.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/testing/floats.h"
#include "kernels/tables.h"
#include "kernels/testing/data.h"
#include "kernels/testing/same_bits.h"
#include "kernels/testing/tables_under_test.h"

namespace longspec::kernels::testing {
namespace {

using longspec::testing::kInfinity;
using ElementwiseTest = TableTest;
LONGSPEC_FOR_TABLES(ElementwiseTest,
                    TablesThatDiffer(&KernelTable::rms_norm, &KernelTable::rope, &KernelTable::swiglu,
                                     &KernelTable::geglu, &KernelTable::exp, &KernelTable::argmax,
                                     &KernelTable::top_k));

constexpr int kLengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 33, 63, 64, 65, 100, 576, 577, 1023};

// Every sign and exponent, many mantissas; no NaN.
std::vector<float> FloatsOfAllExponents() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 65521) {
    const float f = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isnan(f)) x.push_back(f);
  }
  return x;
}

// The places where the polynomial changes branch, their neighbours, and the ends of the number line.
std::vector<float> ExpBoundaries() {
  std::vector<float> x = {0.0F, -0.0F, 1e-45F, -1e-45F, kInfinity, -kInfinity, 1e30F, -1e30F};
  for (const float f :
       {-87.33654F, 88.37626F, 88.3F, -87.3F, 88.72283F, 0.34657359F, -0.34657359F, 1.0F, -103.9F}) {
    x.insert(x.end(), {f, std::nextafter(f, kInfinity), std::nextafter(f, -kInfinity)});
  }
  for (int n = -127; n <= 128; ++n) {
    const float edge = (static_cast<float>(n) + 0.5F) * 0.69314718F;  // where rint(x / ln 2) steps
    x.insert(x.end(), {edge, std::nextafter(edge, kInfinity), std::nextafter(edge, -kInfinity)});
  }
  return x;
}

std::vector<float> Exp(const KernelTable& table, const std::vector<float>& x) {
  std::vector<float> y(x.size(), -1.0F);
  table.exp(x.data(), static_cast<int>(x.size()), y.data());
  return y;
}

TEST_P(ElementwiseTest, ExpOfAllExponents) {
  const std::vector<float> x = FloatsOfAllExponents();
  EXPECT_TRUE(SameBits(Exp(kReferenceTable, x), Exp(table(), x)));
}

TEST_P(ElementwiseTest, ExpAtBoundaries) {
  const std::vector<float> x = ExpBoundaries();
  EXPECT_TRUE(SameBits(Exp(kReferenceTable, x), Exp(table(), x)));
}

TEST_P(ElementwiseTest, ExpOfEveryLength) {
  for (const int n : kLengths) {
    const std::vector<float> x = Random(7).Floats(static_cast<size_t>(n), 40.0F);
    ASSERT_TRUE(SameBits(Exp(kReferenceTable, x), Exp(table(), x))) << n;
  }
}

TEST_P(ElementwiseTest, ExpOfNanIsNan) {
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    for (size_t at = 0; at < 33; ++at) {
      std::vector<float> x(33, 1.0F);
      x[at] = nan;
      const std::vector<float> y = Exp(table(), x);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i == at) << i;
      ASSERT_TRUE(std::isnan(Exp(kReferenceTable, x)[at]));
    }
  }
}

// The specification itself is within 3e-7 of the exact value, wherever the result is a normal number.
TEST(ExpReferenceTest, IsAccurate) {
  std::vector<float> x = FloatsOfAllExponents();
  const std::vector<float> boundaries = ExpBoundaries();
  x.insert(x.end(), boundaries.begin(), boundaries.end());
  for (float f = -87.3F; f < 88.3F; f += 0.00137F) x.push_back(f);
  std::erase_if(x, [](float f) { return !(f >= -87.33654F && f <= 88.37626F); });
  ASSERT_GT(x.size(), 100000U);
  const std::vector<float> y = Exp(kReferenceTable, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_LT(std::fabs(y[i] - exact), 3e-7 * exact) << x[i];
  }
}

TEST(ExpReferenceTest, EndsAreZeroAndFinite) {
  const std::vector<float> y =
      Exp(kReferenceTable, {-kInfinity, -1e30F, -87.4F, kInfinity, 1e30F, 0.0F, -0.0F});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_EQ(y[1], 0.0F);
  EXPECT_EQ(y[2], 0.0F);
  EXPECT_FALSE(std::signbit(y[0]));
  EXPECT_TRUE(std::isfinite(y[3]));
  EXPECT_EQ(y[3], y[4]);
  EXPECT_EQ(y[5], 1.0F);
  EXPECT_EQ(y[6], 1.0F);
}

std::vector<float> RmsNorm(const KernelTable& table, const std::vector<float>& x, const std::vector<float>& w,
                           float eps) {
  std::vector<float> y(x.size());
  table.rms_norm(x.data(), w.data(), static_cast<int>(x.size()), eps, y.data());
  return y;
}

TEST_P(ElementwiseTest, RmsNormOfEveryLength) {
  for (const int n : kLengths) {
    for (const float scale : {1.0F, 1e-20F, 1e15F}) {
      const std::vector<float> x = Random(8).Floats(static_cast<size_t>(n), scale);
      const std::vector<float> w = Random(9).Floats(static_cast<size_t>(n));
      ASSERT_TRUE(SameBits(RmsNorm(kReferenceTable, x, w, 1e-5F), RmsNorm(table(), x, w, 1e-5F)))
          << n << " " << scale;
    }
  }
  const std::vector<float> zeros(65), ones(65, 1.0F);
  EXPECT_TRUE(SameBits(RmsNorm(kReferenceTable, zeros, ones, 1e-6F), RmsNorm(table(), zeros, ones, 1e-6F)));
}

TEST(RmsNormReferenceTest, MeansWhatItSays) {
  const std::vector<float> x = Random(10).Floats(577), w = Random(11).Floats(577);
  double ss = 0;
  for (const float v : x) ss += double{v} * double{v};
  const double r = 1.0 / std::sqrt(ss / 577 + 1e-5);
  const std::vector<float> y = RmsNorm(kReferenceTable, x, w, 1e-5F);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i] * r * w[i], 1e-6 * std::fabs(x[i] * r * w[i]));
}

std::vector<float> Angles(int n_rot) {
  std::vector<float> cos_sin;
  for (int i = 0; i < n_rot / 2; ++i) {
    const double angle = 1234.0 * std::pow(10000.0, -2.0 * i / n_rot);
    cos_sin.push_back(static_cast<float>(std::cos(angle)));
    cos_sin.push_back(static_cast<float>(std::sin(angle)));
  }
  return cos_sin;
}

TEST_P(ElementwiseTest, RopeOfBothPairings) {
  for (const RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalfSplit}) {
    for (const int n_rot : {2, 4, 6, 8, 10, 14, 16, 18, 24, 30, 32, 34, 48, 64, 66, 80, 96, 128, 256}) {
      std::vector<float> expected = Random(12).Floats(static_cast<size_t>(n_rot) + 5), actual = expected;
      kReferenceTable.rope(expected.data(), n_rot, Angles(n_rot).data(), pairing);
      table().rope(actual.data(), n_rot, Angles(n_rot).data(), pairing);
      ASSERT_TRUE(SameBits(expected, actual)) << n_rot;
    }
  }
}

TEST(RopeReferenceTest, RotatesThePairs) {
  std::vector<float> adjacent = {1, 2, 3, 4}, half = {1, 2, 3, 4};
  const float quarter[] = {0, 1, 0, 1};  // cos, sin of a right angle: (x0, x1) -> (-x1, x0)
  kReferenceTable.rope(adjacent.data(), 4, quarter, RopePairing::kAdjacent);
  kReferenceTable.rope(half.data(), 4, quarter, RopePairing::kHalfSplit);
  EXPECT_EQ(adjacent, (std::vector<float>{-2, 1, -4, 3}));
  EXPECT_EQ(half, (std::vector<float>{-3, -4, 1, 2}));
}

// The gates of an MLP, as functions of a table.
using Gate = decltype(KernelTable::swiglu) KernelTable::*;
constexpr Gate kGates[] = {&KernelTable::swiglu, &KernelTable::geglu};

std::vector<float> Gated(const KernelTable& table, Gate gate, const std::vector<float>& g,
                         const std::vector<float>& u) {
  std::vector<float> out(g.size(), -1.0F);
  (table.*gate)(g.data(), u.data(), static_cast<int>(g.size()), out.data());
  return out;
}

TEST_P(ElementwiseTest, GatesOfEveryLength) {
  for (const Gate gate : kGates) {
    for (const int n : kLengths) {
      for (const float scale : {1.0F, 30.0F, 300.0F}) {
        const auto size = static_cast<size_t>(n);
        const std::vector<float> g = Random(13).Floats(size, scale), u = Random(14).Floats(size);
        ASSERT_TRUE(SameBits(Gated(kReferenceTable, gate, g, u), Gated(table(), gate, g, u)))
            << (gate == kGates[0] ? "swiglu " : "geglu ") << n << " " << scale;
      }
    }
  }
}

TEST_P(ElementwiseTest, GatesOfAllExponents) {
  std::vector<float> g = FloatsOfAllExponents();
  const std::vector<float> boundaries = ExpBoundaries();
  g.insert(g.end(), boundaries.begin(), boundaries.end());
  const std::vector<float> u(g.size(), -0.75F);
  for (const Gate gate : kGates) {
    EXPECT_TRUE(SameBits(Gated(kReferenceTable, gate, g, u), Gated(table(), gate, g, u)));
  }
}

TEST_P(ElementwiseTest, GatesOfNanAreNan) {
  const std::vector<float> ones(33, 1.0F);
  for (const Gate gate : kGates) {
    for (size_t at = 0; at < 33; ++at) {
      std::vector<float> with_nan = ones;
      with_nan[at] = std::nanf("");
      for (const KernelTable* t : {&table(), &kReferenceTable}) {
        const std::vector<float> of_g = Gated(*t, gate, with_nan, ones),
                                 of_u = Gated(*t, gate, ones, with_nan);
        for (size_t i = 0; i < 33; ++i) {
          ASSERT_EQ(std::isnan(of_g[i]), i == at) << i;
          ASSERT_EQ(std::isnan(of_u[i]), i == at) << i;
        }
      }
    }
  }
}

TEST(SwiGluReferenceTest, MeansWhatItSays) {
  const std::vector<float> g = Random(15).Floats(500, 20.0F), u = Random(16).Floats(500);
  const std::vector<float> out = Gated(kReferenceTable, &KernelTable::swiglu, g, u);
  for (size_t i = 0; i < g.size(); ++i) {
    const double exact = g[i] / (1.0 + std::exp(-double{g[i]})) * u[i];
    EXPECT_NEAR(out[i], exact, 1e-6 * std::fabs(exact));
  }
}

// Of GELU's two forms the one by tanh: that by erf is up to 5e-4 away.
TEST(GeGluReferenceTest, MeansWhatItSays) {
  const std::vector<float> g = Random(15).Floats(500, 20.0F), u = Random(16).Floats(500);
  const std::vector<float> out = Gated(kReferenceTable, &KernelTable::geglu, g, u);
  for (size_t i = 0; i < g.size(); ++i) {
    const double x = g[i], y = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    const double exact = 0.5 * x * (1.0 + std::tanh(y)) * u[i];
    EXPECT_NEAR(out[i], exact, 3e-7 * std::fabs(x * u[i])) << x;
  }
}

TEST(GateReferenceTest, EndsAreTheInputAndNextToNothing) {
  const std::vector<float> g = {1e30F, 3e38F, kInfinity, -100.0F, -1e4F, -kInfinity, 0.0F, -0.0F};
  const std::vector<float> twos(g.size(), 2.0F), halves(g.size(), 0.5F);
  for (const Gate gate : kGates) {
    const std::vector<float> doubled = Gated(kReferenceTable, gate, g, twos);
    EXPECT_EQ(doubled[0], 2e30F);
    EXPECT_EQ(Gated(kReferenceTable, gate, g, halves)[1], 1.5e38F);
    EXPECT_EQ(doubled[2], kInfinity);
    for (const size_t i : {3, 4}) {
      EXPECT_LT(doubled[i], 0.0F);
      EXPECT_GT(doubled[i], -1e-34F);
    }
    EXPECT_EQ(doubled[5], -kInfinity);
    for (const size_t i : {6, 7}) {
      EXPECT_EQ(doubled[i], 0.0F);
      EXPECT_EQ(std::signbit(doubled[i]), i == 7);
    }
  }
}

// Many equal values, some of them the largest; signed zeros are equal too.
std::vector<float> WithTies(int n, int n_distinct, uint32_t seed) {
  Random random(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) {
    v = static_cast<float>(random.Below(n_distinct) - n_distinct / 2);
    if (v == 0.0F && random.Below(2) == 0) v = -0.0F;
  }
  return x;
}

TEST_P(ElementwiseTest, ArgmaxOfEveryPlace) {
  for (const int n : {1, 2, 7, 8, 9, 16, 17, 31, 32, 40, 65}) {
    for (int place = 0; place < n; ++place) {
      std::vector<float> x(static_cast<size_t>(n), -kInfinity);
      x[static_cast<size_t>(place)] = -3.0F;
      ASSERT_EQ(table().argmax(x.data(), n), place) << n;
    }
  }
}

TEST_P(ElementwiseTest, ArgmaxOfTiesIsTheFirst) {
  for (const int n : kLengths) {
    for (const int n_distinct : {1, 2, 5}) {
      const std::vector<float> x = WithTies(n, n_distinct, 17);
      const auto first = std::max_element(x.begin(), x.end()) - x.begin();
      ASSERT_EQ(table().argmax(x.data(), n), first);
      ASSERT_EQ(kReferenceTable.argmax(x.data(), n), first);
    }
  }
}

TEST_P(ElementwiseTest, ArgmaxStaysInsideARowOfNan) {
  for (const int n : kLengths) {
    // The largest value behind the row's end would be found by a search that does not stop.
    std::vector<float> x(static_cast<size_t>(n) + 64, kInfinity);
    std::fill_n(x.begin(), n, std::nanf(""));
    const int place = table().argmax(x.data(), n);
    EXPECT_TRUE(place >= 0 && place < n) << n;
    x[0] = 1.0F;
    const int other = table().argmax(x.data(), n);
    EXPECT_TRUE(other >= 0 && other < n) << n;
  }
}

void ExpectTopK(const KernelTable& table, const std::vector<float>& x, int k) {
  const auto n = static_cast<int>(x.size());
  std::vector<float> expected(static_cast<size_t>(k)), actual(static_cast<size_t>(k));
  std::vector<int32_t> expected_at(static_cast<size_t>(k)), actual_at(static_cast<size_t>(k));
  kReferenceTable.top_k(x.data(), n, k, expected.data(), expected_at.data());
  table.top_k(x.data(), n, k, actual.data(), actual_at.data());
  ASSERT_TRUE(SameBits(expected_at, actual_at)) << "n " << n << ", k " << k;
  ASSERT_TRUE(SameBits(expected, actual)) << "n " << n << ", k " << k;
}

// Random rows and rows of many ties, from one element to all of them: values and places of a sorted row.
TEST_P(ElementwiseTest, TopK) {
  for (const int n : kLengths) {
    for (const int k : {1, 2, 3, 8, 10, 16, 20, 40, 64}) {
      if (k > n) continue;
      ExpectTopK(table(), Random(18).Floats(static_cast<size_t>(n)), k);
      ExpectTopK(table(), WithTies(n, 3, 19), k);
      ExpectTopK(table(), WithTies(n, 40, 20), k);
    }
  }
}

TEST_P(ElementwiseTest, TopKOfAVocabulary) {
  std::vector<float> x = Random(21).Floats(49152, 20.0F);
  ExpectTopK(table(), x, 40);
  std::sort(x.begin(), x.end());  // every value beats the last: the worst order for a kept list
  ExpectTopK(table(), x, 17);
  std::fill(x.begin() + 100, x.end(), -kInfinity);
  ExpectTopK(table(), x, 120);
}

TEST(TopKReferenceTest, OrdersTiesByIndex) {
  const std::vector<float> x = {1, 5, 5, -2, 9, 5};
  float values[4];
  int32_t indices[4];
  kReferenceTable.top_k(x.data(), 6, 4, values, indices);
  EXPECT_EQ(std::vector<int32_t>(indices, indices + 4), (std::vector<int32_t>{4, 1, 2, 5}));
  EXPECT_EQ(std::vector<float>(values, values + 4), (std::vector<float>{9, 5, 5, 5}));
}

}  // namespace
}  // namespace longspec::kernels::testing
