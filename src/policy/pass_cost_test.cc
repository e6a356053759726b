// SPDX-License-Identifier: Apache-2.0
//
// What a pass over several sequences costs, from what one sequence costs.
#include "policy/pass_cost.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "base/counter_rng.h"

namespace longspec {
namespace {

constexpr std::array<int, 6> kRows = {1, 2, 4, 8, 16, 32};

CostModel Made(const std::function<double(int rows, int keys)>& ms) {
  CostTable table{.rows = {kRows.begin(), kRows.end()}, .keys = {256, 1024, 4096}, .ms = {}};
  for (const int rows : table.rows) {
    for (const int keys : table.keys) table.ms.push_back(ms(rows, keys));
  }
  return CostModel(table);
}

double Products(int rows) { return 5.0 + 0.25 * rows; }
double Attention(int rows, int keys) { return (0.001 + 0.0005 * rows) * keys; }
CostModel Affine() {
  return Made([](int rows, int keys) { return Products(rows) + Attention(rows, keys); });
}

// Tables with bends in both directions.
CostModel Bent(uint64_t seed) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  return Made([&](int rows, int keys) {
    const auto at = [&](uint32_t draw) {
      return rng.Uniform(static_cast<uint64_t>(rows) * 10000 + static_cast<uint64_t>(keys), draw);
    };
    return 3 + rows * (0.2 + at(0)) + keys * 0.002 * (1 + at(1));
  });
}

TEST(PassCost, OfOneSequenceIsTheModels) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const CostModel model = Bent(seed);
    const PassCost cost(model);
    for (const int rows : {1, 2, 3, 7, 16, 31, 32, 63, 64, 65, 500}) {
      for (const int keys : {1, 100, 256, 700, 5000}) {
        const PassPart part{.rows = rows, .keys = keys};
        ASSERT_EQ(cost.Ms({&part, 1}), model.TargetMs(rows, keys)) << rows << " rows, " << keys << " keys";
        // Others without rows take no part.
        const std::vector<PassPart> parts = {{.rows = 0, .keys = 300}, part, {.rows = 0, .keys = 9}};
        ASSERT_EQ(cost.Ms(parts), model.TargetMs(rows, keys));
      }
    }
  }
}

// Corrections may say that more keys cost less.
TEST(PassCost, OfOneSequenceIsTheModelsWhateverItBelieves) {
  CostModel model = Affine();
  for (int i = 0; i < 300; ++i) {
    model.Observe(1 + i % 8, 4000, 3.0);
    model.Observe(1 + i % 8, 300, 12.0 + i % 8);
  }
  const PassCost cost(model);
  ASSERT_LT(model.TargetMs(8, 4000), model.TargetMs(8, 300));
  std::vector<PassPart> parts = {{.rows = 1, .keys = 4000}, {.rows = 0, .keys = 500}};
  GrowingPass pass(cost, parts);
  for (; parts[0].rows < 12; ++parts[0].rows, pass.AddRow(0)) {
    ASSERT_EQ(cost.Ms(parts), model.TargetMs(parts[0].rows, 4000));
    ASSERT_EQ(pass.ms(), model.TargetMs(parts[0].rows, 4000));
  }
  parts[1].rows = 3;
  EXPECT_GE(cost.Ms(parts), model.TargetMs(15, 0));  // attention is never paid for
}

TEST(PassCost, ProductsOfAllRowsAndAttentionOfEach) {
  const CostModel model = Affine();
  const PassCost cost(model);
  const std::vector<PassPart> parts = {{.rows = 1, .keys = 1000}, {.rows = 4, .keys = 300}};
  EXPECT_NEAR(cost.Ms(parts), Products(5) + Attention(1, 1000) + Attention(4, 300), 1e-9);
  const std::vector<PassPart> many(16, {.rows = 1, .keys = 4096});
  EXPECT_NEAR(cost.Ms(many), Products(16) + 16 * Attention(1, 4096), 1e-9);
  // Far from sixteen passes, and far from one sequence of sixteen rows.
  EXPECT_LT(cost.Ms(many), 0.7 * 16 * model.TargetMs(1, 4096));
  EXPECT_GT(cost.Ms(many), 1.3 * model.TargetMs(16, 4096));
}

TEST(PassCost, NothingCostsNothing) {
  const CostModel model = Affine();
  const PassCost cost(model);
  EXPECT_EQ(cost.Ms({}), 0);
  const PassPart part{.rows = 0, .keys = 500};
  EXPECT_EQ(cost.Ms({&part, 1}), 0);
}

TEST(PassCost, KeysThatSequencesShareAreAttendedOnce) {
  const CostModel model = Affine();
  const PassCost cost(model);
  const std::vector<PassPart> parts = {
      {.rows = 2, .keys = 3000},
      {.rows = 1, .keys = 2500, .shared_with = 0, .shared_keys = 2048},
      {.rows = 3, .keys = 2100, .shared_with = 1, .shared_keys = 1024},
  };
  // Six rows see the first 1,024 keys, three of them go on together.
  double expected = Products(6) + Attention(6, 1024);
  expected += Attention(3, 2048) - Attention(3, 1024);
  expected += Attention(2, 3000) - Attention(2, 2048);
  expected += Attention(1, 2500) - Attention(1, 2048);
  expected += Attention(3, 2100) - Attention(3, 1024);
  EXPECT_NEAR(cost.Ms(parts), expected, 1e-9);

  std::vector<PassPart> apart = parts;
  for (PassPart& part : apart) part.shared_with = -1;
  EXPECT_GT(cost.Ms(apart), cost.Ms(parts) + 2);
}

// Which of several earlier parts is named must not matter, nor a part of no rows on the way.
TEST(PassCost, SharingIsATreeWhoeverIsNamed) {
  const CostModel model = Bent(4);
  const PassCost cost(model);
  std::vector<PassPart> parts = {
      {.rows = 1, .keys = 4000},
      {.rows = 0, .keys = 3000, .shared_with = 0, .shared_keys = 2560},
      {.rows = 2, .keys = 2600, .shared_with = 1, .shared_keys = 512},
      {.rows = 5, .keys = 2700, .shared_with = 2, .shared_keys = 1536},
  };
  const double ms = cost.Ms(parts);
  parts[2].shared_with = 0;
  EXPECT_NEAR(cost.Ms(parts), ms, 1e-9);
  const std::vector<PassPart> without = {
      parts[0], parts[2], {.rows = 5, .keys = 2700, .shared_with = 1, .shared_keys = 1536}};
  EXPECT_NEAR(cost.Ms(without), ms, 1e-9);
}

TEST(PassCost, AGrowingPassCostsWhatAPassOfItsRowsDoes) {
  const CostModel model = Bent(2);
  const PassCost cost(model);
  std::vector<PassPart> parts = {
      {.rows = 1, .keys = 900},
      {.rows = 0, .keys = 2000},
      {.rows = 1, .keys = 1500, .shared_with = 0, .shared_keys = 768},
      {.rows = 40, .keys = 3000, .shared_with = 1, .shared_keys = 512},
  };
  GrowingPass pass(cost, parts);
  const RngStream rng{.seed = 1, .purpose = RngPurpose::kTest};
  for (uint64_t i = 0; i < 100; ++i) {
    const int part = static_cast<int>(4 * rng.Uniform(i));
    const double before = pass.ms(), next = pass.ProductsMs(1) + pass.NextAttentionMs(part);
    pass.AddRow(part);
    ++parts[static_cast<size_t>(part)].rows;
    ASSERT_EQ(pass.ms(), cost.Ms(parts));
    // Attention is never believed to get cheaper by a row, which bent tables may say.
    ASSERT_LE(pass.ms() - before, next + 1e-9);
  }
  EXPECT_TRUE(pass.Share(0, 2));
  EXPECT_TRUE(pass.Share(3, 1));
  EXPECT_FALSE(pass.Share(0, 1));
  EXPECT_FALSE(pass.Share(2, 3));
}

TEST(PassCost, ChainsSeeTheMeanOfTheirKeys) {
  EXPECT_EQ(ChainPart(1, 99).keys, 100);  // the root of a hundred committed tokens
  EXPECT_EQ(ChainPart(5, 99).keys, 102);
  EXPECT_EQ(ChainPart(5, 99).rows, 5);
}

TEST(ObservePass, OfOneSequenceIsTheModelsOwn) {
  CostModel model = Bent(7), same = model;
  for (int i = 0; i < 50; ++i) {
    const PassPart part{.rows = 1 + i % 9, .keys = 200 + 30 * i};
    ObservePass({&part, 1}, 4.0 + i % 7, &model);
    same.Observe(part.rows, part.keys, 4.0 + i % 7);
    ASSERT_EQ(model.TargetMs(5, 700), same.TargetMs(5, 700));
  }
  ObservePass({}, 5, &model);
  EXPECT_EQ(model.TargetMs(5, 700), same.TargetMs(5, 700));
}

// The machine is half as fast as the table says: passes of many sequences tell.
TEST(ObservePass, PassesOfManyCureAWrongTable) {
  CostModel model = Affine();
  const CostModel believed = Affine();
  const PassCost before(believed);
  const RngStream rng{.seed = 5, .purpose = RngPurpose::kTest};
  std::vector<PassPart> parts(6);
  for (uint64_t i = 0; i < 400; ++i) {
    for (uint32_t s = 0; s < 6; ++s) {
      parts[s] = {.rows = 1 + static_cast<int>(3 * rng.Uniform(i, s)),
                  .keys = 300 + static_cast<int>(3000 * rng.Uniform(i, 10 + s))};
    }
    ObservePass(parts, 2 * before.Ms(parts), &model);
  }
  EXPECT_NEAR(PassCost(model).Ms(parts), 2 * before.Ms(parts), 0.1 * before.Ms(parts));
  EXPECT_GT(model.TargetMs(1, 500), 1.5 * believed.TargetMs(1, 500));  // of other shapes as well
}

}  // namespace
}  // namespace longspec
