// SPDX-License-Identifier: Apache-2.0
//
// Costs of passes are measured in a given time, on clocks that a test turns.
#include "decode/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/clock.h"
#include "decode/testing/toy_target.h"

namespace longspec::testing {
namespace {

// A toy that counts its passes by rows. Wider ones take longer.
class CountingTarget final : public Target {
 public:
  explicit CountingTarget(const ToyLanguage* language) : toy_(language) {}
  int vocab_size() const override { return toy_.vocab_size(); }
  int context_length() const override { return toy_.context_length(); }
  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    if (fail_after >= 0 && fail_after-- == 0) return IoError("the target failed");
    ++passes[static_cast<int>(segments[0].tokens.size())];
    keys.push_back(segments[0].kv->base());
    SpendMs(1 + 0.1 * static_cast<double>(segments[0].tokens.size()));
    return toy_.Forward(segments);
  }
  std::map<int, int> passes;
  std::vector<int> keys;
  int fail_after = -1;

 private:
  ToyTarget toy_;
};

Result<std::unique_ptr<KvCache>> Scratch(int depth, int rows) {
  auto cache = std::make_unique<ToyCache>(depth + rows);
  auto made_up = cache->Begin(depth);
  if (!made_up.ok()) return made_up.status();
  made_up->CommitAll();
  return std::unique_ptr<KvCache>(std::move(cache));
}

struct Fixture {
  const SimulatedClock clock{};
  ToyLanguage language{8, 1};
  CountingTarget target{&language};
};

TEST(Calibration, MeasuresTwoDepthsAndFillsTheTable) {
  Fixture f;
  const auto measured = Calibrate(f.target, Scratch, {.capacity = 8192, .deep = 1024});
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  const CostTable* table = &measured->table;
  EXPECT_TRUE(CheckCostTable(*table).ok());
  EXPECT_EQ(table->rows, (std::vector<int>{1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 128, 512}));
  EXPECT_EQ(table->keys, (std::vector<int>{256, 1024, 4096, 8192}));
  EXPECT_GE(f.target.passes.size(), 9U);  // 32 rows are left out where costs are in proportion
  EXPECT_EQ(*std::min_element(f.target.keys.begin(), f.target.keys.end()), 256);
  EXPECT_EQ(*std::max_element(f.target.keys.begin(), f.target.keys.end()), 1024);
  CostModel model(*table);
  EXPECT_LT(model.TargetMs(1, 256), model.TargetMs(32, 256));
}

TEST(Calibration, WithoutTimeItMeasuresLittleAndStillKnowsAllRows) {
  Fixture f;
  const auto measured =
      Calibrate(f.target, Scratch, {.capacity = 4096, .deep = 512, .budget_ms = 0, .wide_ms = 0});
  ASSERT_TRUE(measured.ok());
  const CostTable* table = &measured->table;
  EXPECT_EQ(f.target.passes.size(), 2U);
  EXPECT_TRUE(CheckCostTable(*table).ok());
  EXPECT_EQ(table->rows.size(), 10U);
}

// A pass takes `ms` and so much for each row, by a clock of its own.
class SlowTarget final : public Target {
 public:
  SlowTarget(const ToyLanguage* language, double ms, double ms_per_row)
      : toy_(language), ms_(ms), ms_per_row_(ms_per_row) {}
  // What keys add for each row, in ms; null: nothing.
  std::function<double(int keys)> ms_of_keys;
  int vocab_size() const override { return toy_.vocab_size(); }
  int context_length() const override { return toy_.context_length(); }
  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    const auto rows = static_cast<int>(segments[0].tokens.size());
    ++passes[rows];
    has_logits[rows] = segments[0].logits != LogitsFor::kNone;
    SpendMs(ms_ + ms_per_row_ * rows);
    if (ms_of_keys) SpendMs(rows * ms_of_keys(segments[0].kv->base()));
    return toy_.Forward(segments);
  }
  std::map<int, int> passes;
  std::map<int, bool> has_logits;

 private:
  const SimulatedClock clock_;
  ToyTarget toy_;
  const double ms_, ms_per_row_;
};

TEST(Calibration, PiecesOfPromptsAreMeasuredOnceEach) {
  const ToyLanguage language{8, 1};
  SlowTarget target(&language, 2, 0.25);
  const auto measured = Calibrate(target, Scratch, {.capacity = 2048, .deep = 1024});
  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(target.passes[128], 2);  // one at each depth
  EXPECT_EQ(target.passes[512], 2);
  EXPECT_TRUE(target.has_logits[128]);
  EXPECT_FALSE(target.has_logits[512]);  // a prompt's
  const CostModel model(measured->table);
  for (const int rows : {16, 64, 128, 200, 512}) {
    EXPECT_NEAR(model.TargetMs(rows, 512), 2 + 0.25 * rows, 1e-9) << rows;
  }
}

TEST(Calibration, OfALargeModelFewPassesAreMeasured) {
  const ToyLanguage language{8, 1};
  SlowTarget target(&language, 900, 100);
  ASSERT_TRUE(Calibrate(target, Scratch, {.capacity = 2048, .deep = 1024}).ok());
  // At each depth one to warm up, and one of each.
  EXPECT_EQ(target.passes, (std::map<int, int>{{1, 4}, {8, 2}}));
}

// Up to 3,000 keys lie in a processor's cache. What lies beyond is told by a depth beyond alone.
TEST(Calibration, AThirdDepthTellsWhatLongContextsCost) {
  const auto error_at = [](int keys, int deepest) {
    const ToyLanguage language{8, 1};
    SlowTarget target(&language, 2, 0.25);
    target.ms_of_keys = [](int n) { return 1e-4 * n + 5e-4 * std::max(0, n - 3000); };
    const auto measured = Calibrate(target, Scratch, {.capacity = 65536, .deep = 2048, .deepest = deepest});
    EXPECT_TRUE(measured.ok());
    const double truth = 2 + 0.25 * 8 + 8 * target.ms_of_keys(keys);
    return std::abs(CostModel(measured->table).TargetMs(8, keys) / truth - 1);
  };
  EXPECT_LT(error_at(1024, 8192), 0.01);
  EXPECT_LT(error_at(16384, 8192), 0.15);
  EXPECT_LT(error_at(65536, 8192), 0.15);
  EXPECT_GT(error_at(16384, 0), 0.7);
  EXPECT_GT(error_at(65536, 0), 0.7);
  EXPECT_GT(error_at(65536, 3000), 0.7);  // no twice as deep as the second
}

TEST(Calibration, WidePassesThatWouldTakeTooLongAreLeftOut) {
  const auto widest = [](double ms_per_row, CalibrationOptions options) {
    const ToyLanguage language{8, 1};
    SlowTarget target(&language, 0, ms_per_row);
    const auto measured = Calibrate(target, Scratch, options);
    EXPECT_TRUE(measured.ok());
    EXPECT_EQ(measured->table.rows.back(), std::max(32, target.passes.rbegin()->first));
    return measured->table.rows.back();
  };
  CalibrationOptions options = {.capacity = 2048, .deep = 1024, .wide_ms = 60};
  EXPECT_EQ(widest(0.01, options), 512);
  EXPECT_EQ(widest(0.15, options), 128);  // two of 19 ms, and two of 77 would be too much
  EXPECT_EQ(widest(2.0, options), 32);
  options.wide_ms = 1e9;
  options.most_rows = 256;
  EXPECT_EQ(widest(0.01, options), 128);
  options = {.capacity = 1200, .deep = 1024};
  EXPECT_EQ(widest(0.01, options), 128);  // there are 176 positions beyond the deeper ones
}

// A context shorter than the depths that are usually measured gives a whole table as well, and no pass
// beyond its end.
TEST(Calibration, TinyContexts) {
  for (const int capacity : {2, 3, 40, 100, 300}) {
    Fixture f;
    const auto measured = Calibrate(f.target, Scratch, {.capacity = capacity});
    ASSERT_TRUE(measured.ok()) << capacity << ": " << measured.status().message();
    const CostTable* table = &measured->table;
    EXPECT_TRUE(CheckCostTable(*table).ok()) << capacity;
    EXPECT_EQ(table->keys.back(), capacity);
    EXPECT_LE(f.target.passes.rbegin()->first, capacity);
  }
  Fixture f;
  EXPECT_EQ(Calibrate(f.target, Scratch, {.capacity = 1}).status().code(), StatusCode::kInvalidArgument);
}

// A target that gets slower and slower, now and then by far.
class TiringTarget final : public Target {
 public:
  explicit TiringTarget(const ToyLanguage* language) : toy_(language) {}
  int vocab_size() const override { return toy_.vocab_size(); }
  int context_length() const override { return toy_.context_length(); }
  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    ++calls_;
    SpendMs(0.2 * calls_ * (calls_ % 2 == 0 ? 1 : 3));
    return toy_.Forward(segments);
  }

 private:
  const SimulatedClock clock_;
  int calls_ = 0;
  ToyTarget toy_;
};

TEST(Calibration, ABusyMachineIsToldApart) {
  const ToyLanguage language{8, 1};
  TiringTarget tiring(&language);
  const auto measured = Calibrate(tiring, Scratch, {.capacity = 100, .budget_ms = 2000});
  ASSERT_TRUE(measured.ok());
  EXPECT_FALSE(measured->steady);
}

// All passes alike, and yet stopped by others again and again.
TEST(Calibration, OneThatTakesTheCoresInTurnIsToldApart) {
  for (const int64_t stops : {0, 1000}) {
    const ToyLanguage language{8, 1};
    SlowTarget target(&language, 4, 0.1);
    int64_t asked = 0;
    CalibrationOptions options = {.capacity = 4096};
    options.preemptions = [&] { return stops * asked++; };
    const auto measured = Calibrate(target, Scratch, options);
    ASSERT_TRUE(measured.ok());
    EXPECT_EQ(measured->steady, stops == 0);
  }
}

// Before the next pass, whichever it is: those before the first that counts, and the widest.
TEST(Calibration, ItStopsWhenItIsTold) {
  const auto n_passes = [](int allowed) {
    Fixture f;
    int asked = 0;
    CalibrationOptions options = {.capacity = 4096};
    options.keep_going = [&] { return asked++ < allowed; };
    const auto measured = Calibrate(f.target, Scratch, options);
    if (!measured.ok()) {
      EXPECT_EQ(measured.status().code(), StatusCode::kCancelled);
    }
    EXPECT_EQ(measured.ok(), allowed > asked - 1);
    return static_cast<int>(f.target.keys.size());
  };
  const int all = n_passes(1 << 20);
  for (const int allowed : {0, 1, 5, all / 2, all - 1}) EXPECT_EQ(n_passes(allowed), allowed);
}

TEST(Calibration, ErrorsComeBack) {
  for (const int calls : {0, 1, 5}) {
    Fixture f;
    f.target.fail_after = calls;
    EXPECT_EQ(Calibrate(f.target, Scratch, {.capacity = 4096}).status().message(), "the target failed");
  }
  Fixture f;
  const auto no_memory = [](int, int) -> Result<std::unique_ptr<KvCache>> {
    return ResourceExhausted("none");
  };
  EXPECT_EQ(Calibrate(f.target, no_memory, {.capacity = 4096}).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace longspec::testing
