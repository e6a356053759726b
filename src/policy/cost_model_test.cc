// SPDX-License-Identifier: Apache-2.0
//
// What passes cost: a table of measured points that rounds correct.
#include "policy/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/counter_rng.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

CostTable Table() {
  return {.rows = {1, 4, 8},
          .keys = {100, 1100, 2100},
          .ms = {2, 3, 5,   //
                 4, 6, 12,  //
                 8, 10, 30}};
}

TEST(CostModel, GivesThePointsBackAndInterpolatesBetween) {
  const CostModel model(Table());
  EXPECT_DOUBLE_EQ(model.TargetMs(1, 100), 2);
  EXPECT_DOUBLE_EQ(model.TargetMs(4, 1100), 6);
  EXPECT_DOUBLE_EQ(model.TargetMs(8, 2100), 30);
  EXPECT_DOUBLE_EQ(model.TargetMs(1, 600), 2.5);
  EXPECT_DOUBLE_EQ(model.TargetMs(6, 100), 6);
  EXPECT_DOUBLE_EQ(model.TargetMs(6, 600), 7);  // of 4, 6, 8 and 10
}

TEST(CostModel, ExtrapolatesLinearlyAndNeverBelowZero) {
  const CostModel model(Table());
  EXPECT_DOUBLE_EQ(model.TargetMs(1, 3100), 7);
  EXPECT_DOUBLE_EQ(model.TargetMs(12, 100), 12);
  EXPECT_DOUBLE_EQ(model.TargetMs(1, 0), 1.9);
  const CostModel steep({.rows = {1}, .keys = {1000, 1001}, .ms = {1, 50}});
  EXPECT_GT(steep.TargetMs(1, 1), 0.0);
  EXPECT_DOUBLE_EQ(steep.TargetMs(7, 1000), 7);  // in proportion
}

TEST(CostModel, ACurveIsThePointsOfEachRowCount) {
  const CostModel model(Table());
  std::vector<double> ms(10);
  model.TargetMs(700, ms);
  for (size_t i = 0; i < ms.size(); ++i) {
    EXPECT_DOUBLE_EQ(ms[i], model.TargetMs(static_cast<int>(i) + 1, 700));
  }
}

TEST(CostModel, NeverFallsWithRows) {
  const RngStream rng{.seed = 3, .purpose = RngPurpose::kTest};
  for (uint64_t round = 0; round < 50; ++round) {
    CostTable noisy = Table();
    for (uint32_t i = 0; i < noisy.ms.size(); ++i) noisy.ms[i] = 0.1 + 10 * rng.Uniform(round, i);
    CostModel model(noisy);
    for (uint32_t i = 0; i < 20; ++i) {
      model.Observe(1 + static_cast<int>(10 * rng.Uniform(round, 100 + i)), 900,
                    20 * rng.Uniform(round, 200 + i));
    }
    for (int keys = 1; keys < 4000; keys += 333) {
      for (int rows = 1; rows < 12; ++rows) {
        ASSERT_GT(model.TargetMs(rows, keys), 0.0);
        ASSERT_LE(model.TargetMs(rows, keys), model.TargetMs(rows + 1, keys) + 1e-9);
      }
    }
  }
}

// The truth: 5 ms and 1 ms for every further row. The table says something else.
TEST(CostModel, AWrongTableCuresItself) {
  for (const double factor : {0.1, 0.5, 2.0, 10.0}) {
    const int n_rounds = factor == 0.5 || factor == 2.0 ? 400 : 1200;
    CostTable wrong = Table();
    for (size_t i = 0; i < wrong.ms.size(); ++i) wrong.ms[i] *= factor;
    CostModel model(wrong);
    for (int i = 0; i < n_rounds; ++i) {
      const int rows = 1 + i % 8;
      model.Observe(rows, 500, 4.0 + rows);
    }
    for (const int rows : {1, 4, 8}) EXPECT_NEAR(model.TargetMs(rows, 500), 4.0 + rows, 0.1 * (4.0 + rows));
  }
}

// A machine whose speed changes while only plain rounds are seen, as when speculation is off: what more rows
// cost in steps of one row stays nearly what it was.
TEST(CostModel, AFasterMachineIsFasterAtAllRowCounts) {
  const auto ratio = [](const CostModel& model) { return model.TargetMs(4, 100) / model.TargetMs(1, 100); };
  CostModel model(Table());
  const double before = ratio(model);
  for (const double speed : {0.8, 1.3, 1.0}) {
    for (int i = 0; i < 30; ++i) model.Observe(1, 100, 2 * speed);
    EXPECT_NEAR(model.TargetMs(1, 100), 2 * speed, 0.02);
    EXPECT_NEAR(ratio(model), before, 0.15);
    for (int i = 0; i < 30; ++i) model.Observe(i % 3 == 0 ? 1 : 4, 100, (i % 3 == 0 ? 2 : 4) * speed);
    EXPECT_NEAR(ratio(model), before, 0.05);
  }
}

// Four rows cost twice what the table says of them: so do eight, or nearly, and at long contexts rows are
// dearer too; but one row is not.
TEST(CostModel, WhatIsWrongOfAFewRowsIsWrongOfMany) {
  CostModel model(Table());
  const CostModel before = model;
  for (int i = 0; i < 200; ++i) model.Observe(i % 2 == 0 ? 1 : 4, 100, i % 2 == 0 ? 2 : 8);
  EXPECT_NEAR(model.TargetMs(1, 100), 2, 0.1);
  EXPECT_NEAR(model.TargetMs(4, 100) / model.TargetMs(1, 100), 4, 0.3);
  for (const int keys : {100, 2100}) {
    const double dearer = model.TargetMs(8, keys) / model.TargetMs(1, keys) * before.TargetMs(1, keys) /
                          before.TargetMs(8, keys);
    EXPECT_GT(dearer, 1.5) << keys;
    EXPECT_LT(dearer, 3) << keys;
    EXPECT_NEAR(model.TargetMs(1, keys), before.TargetMs(1, keys), 0.1 * before.TargetMs(1, keys)) << keys;
  }
}

TEST(CostModel, OneSlowRoundDoesNotChangeMuch) {
  CostModel model(Table());
  model.Observe(1, 100, 5000);
  EXPECT_LT(model.TargetMs(1, 100), 2 * 1.25);
  // Of several rows: most of it is the machine's, and little of that is left.
  model = CostModel(Table());
  model.Observe(4, 100, 5000);
  EXPECT_LT(model.TargetMs(4, 100) / model.TargetMs(1, 100), 2 * 1.15);
  model = CostModel(Table());
  model.Observe(1, 100, 5000);
  for (const double nonsense : {0.0, -1.0, std::nan("")}) model.Observe(1, 100, nonsense);
  model.Observe(0, 100, 1.0);
  EXPECT_LT(model.TargetMs(1, 100), 2 * 1.25);
}

// Points that were not seen for long are uncertain; what is then seen beside them must not throw them off.
TEST(CostModel, StaysSaneWhateverIsSeenAndWhen) {
  CostTable table{.rows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32}, .keys = {256, 1024, 4096, 8192}, .ms = {}};
  for (const int rows : table.rows) {
    for (const int keys : table.keys) table.ms.push_back((4 + rows) * (1 + 0.0003 * keys));
  }
  CostModel model(table);
  const CostModel truth(table);
  std::mt19937 rng(3);
  std::normal_distribution<double> noise(0, 0.03);
  int keys = 0, most_rows = 0;
  for (int round = 0; round < 20000; ++round) {
    if (round % 150 == 0) {
      keys = 300 + static_cast<int>(rng() % 7000);
      most_rows = 1 << rng() % 5;
    }
    const int rows = 1 + static_cast<int>(rng() % static_cast<unsigned>(most_rows));
    model.Observe(rows, keys, truth.TargetMs(rows, keys) * std::exp(noise(rng)));
    for (const int n : {1, 2, 5, 9, 32}) {
      const double ratio = model.TargetMs(n, keys) / truth.TargetMs(n, keys);
      ASSERT_GT(ratio, 0.7) << n << " rows after " << keys << " keys in round " << round;
      ASSERT_LT(ratio, 1.4) << n << " rows after " << keys << " keys in round " << round;
    }
  }
}

TEST(CostModel, ManyRowsAfterAThousandRoundsOfFew) {
  CostTable table{
      .rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 33}, .keys = {512, 2048, 4096, 8192}, .ms = {}};
  for (const int rows : table.rows) {
    for (const int keys : table.keys) table.ms.push_back((4 + rows) * (1 + 0.0003 * keys));
  }
  CostModel model(table);
  const CostModel truth(table);
  std::mt19937 rng(3);
  for (int round = 0; round < 3000; ++round) {
    // Twelve rows a few times, then as many as nothing else told of.
    const int place = round % 1000;
    const int rows = place < 990 ? 1 + static_cast<int>(rng() % 4) : place < 995 ? 12 : 20;
    model.Observe(rows, 400, truth.TargetMs(rows, 400) * (rows == 20 ? 1.1 : 1.0));
    for (const int n : {1, 4, 12, 33}) {
      const double ratio = model.TargetMs(n, 400) / truth.TargetMs(n, 400);
      ASSERT_GT(ratio, 0.8) << n << " rows in round " << round;
      ASSERT_LT(ratio, 1.3) << n << " rows in round " << round;
    }
  }
}

TEST(CostModel, WithoutATableTheFirstRoundSetsTheScale) {
  CostModel model;
  EXPECT_GT(model.TargetMs(8, 10), model.TargetMs(1, 10));
  model.Observe(1, 500, 40);
  EXPECT_NEAR(model.TargetMs(1, 500), 40, 1e-6);
  EXPECT_GT(model.TargetMs(8, 500), 50);
  model.Observe(1, 500, 400);  // a surprise like any other
  EXPECT_LT(model.TargetMs(1, 500), 60);
}

TEST(CostTable, RefusesWhatCannotBeACost) {
  const auto refused = [](CostTable table, const char* part) {
    const Status status = CheckCostTable(table);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << part;
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  EXPECT_TRUE(CheckCostTable(Table()).ok());
  CostTable t = Table();
  t.rows = {};
  refused(t, "rows");
  t = Table();
  t.rows = {1, 4, 4};
  refused(t, "rows");
  t = Table();
  t.rows = {2, 4, 8};
  refused(t, "begin with 1");
  t = Table();
  t.keys = {100, 90, 2100};
  refused(t, "keys");
  t = Table();
  t.keys = {0, 90, 2100};
  refused(t, "keys");
  t = Table();
  t.ms.pop_back();
  refused(t, "8 costs for 3 x 3");
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    t = Table();
    t.ms[4] = bad;
    refused(t, "positive and finite");
  }
  const CostTable empty;
  EXPECT_DEATH(CostModel{empty}, "CheckCostTable");
}

}  // namespace
}  // namespace longspec
