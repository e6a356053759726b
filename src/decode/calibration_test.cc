// SPDX-License-Identifier: Apache-2.0
#include "decode/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "decode/testing/toy_target.h"

namespace longspec::testing {
namespace {

// A toy that counts its passes by rows.
class CountingTarget final : public Target {
 public:
  explicit CountingTarget(const ToyLanguage* language) : toy_(language) {}
  int vocab_size() const override { return toy_.vocab_size(); }
  int context_length() const override { return toy_.context_length(); }
  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    if (fail_after >= 0 && fail_after-- == 0) return IoError("the target failed");
    ++passes[static_cast<int>(segments[0].tokens.size())];
    keys.push_back(segments[0].kv->base());
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
  ToyLanguage language{8, 1};
  CountingTarget target{&language};
};

TEST(Calibration, MeasuresTwoDepthsAndFillsTheTable) {
  Fixture f;
  const auto measured = Calibrate(f.target, Scratch, {.capacity = 8192, .deep = 1024});
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  const CostTable* table = &measured->table;
  EXPECT_TRUE(CheckCostTable(*table).ok());
  EXPECT_EQ(table->rows, (std::vector<int>{1, 2, 3, 4, 5, 6, 8, 12, 16, 32}));
  EXPECT_EQ(table->keys, (std::vector<int>{256, 1024, 4096, 8192}));
  EXPECT_GE(f.target.passes.size(), 9U);  // 32 rows are left out where costs are in proportion
  EXPECT_EQ(*std::min_element(f.target.keys.begin(), f.target.keys.end()), 256);
  EXPECT_EQ(*std::max_element(f.target.keys.begin(), f.target.keys.end()), 1024);
  CostModel model(*table);
  EXPECT_LT(model.TargetMs(1, 256), model.TargetMs(32, 256));
}

TEST(Calibration, WithoutTimeItMeasuresLittleAndStillKnowsAllRows) {
  Fixture f;
  const auto measured = Calibrate(f.target, Scratch, {.capacity = 4096, .deep = 512, .budget_ms = 0});
  ASSERT_TRUE(measured.ok());
  const CostTable* table = &measured->table;
  EXPECT_EQ(f.target.passes.size(), 2U);
  EXPECT_TRUE(CheckCostTable(*table).ok());
  EXPECT_EQ(table->rows.size(), 10U);
}

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
    const double end = NowMs() + 0.2 * calls_ * (calls_ % 2 == 0 ? 1 : 3);
    while (NowMs() < end) {
    }
    return toy_.Forward(segments);
  }

 private:
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
