// SPDX-License-Identifier: Apache-2.0
//
// When costs are measured, and which are kept.
#include "engine/machine_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/calibration_cache.h"
#include "engine/testing/cache_folder.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kHour = 3600;

class MachineCostsTest : public ::testing::Test {
 protected:
  // The cost of one row, and what was said of it, of a program that starts now and would measure this.
  struct Start {
    double ms = 0;
    std::string origin;
  };
  Start At(int64_t now, double ms, bool steady, const std::string& key = "key") {
    MachineCosts costs(folder_.path(), key, [now] { return now; });
    CostModel known = costs.Known();
    auto measured = costs.Measured([&]() -> Result<Calibration> {
      ++n_measured_;
      return Calibration{.table = {.rows = {1, 8}, .keys = {256}, .ms = {ms, 2 * ms}}, .steady = steady};
    });
    if (measured) known = std::move(*measured);
    return {known.TargetMs(1, 256), costs.origin()};
  }

  testing::CacheFolderOfOne folder_;
  int n_measured_ = 0;
};

TEST_F(MachineCostsTest, ThoseOfAQuietMachineAreMeasuredOnce) {
  EXPECT_THAT(At(0, 3, true).origin, ::testing::AllOf(StartsWith("measured in "), HasSubstr(", kept in ")));
  for (const int64_t now : {int64_t{0}, 1000 * kHour, -kHour}) {
    const Start later = At(now, 7, true);
    EXPECT_EQ(later.ms, 3);
    EXPECT_EQ(later.origin, "measured earlier on this machine");
  }
  EXPECT_EQ(n_measured_, 1);
}

TEST_F(MachineCostsTest, ThoseOfABusyMachineAreKeptAndSaidToBeSo) {
  EXPECT_THAT(At(0, 5, false).origin, HasSubstr("on this machine, which was busy, kept in "));
  const Start later = At(23 * kHour, 7, true);
  EXPECT_EQ(n_measured_, 1);
  EXPECT_EQ(later.ms, 5);
  EXPECT_EQ(later.origin, "measured earlier on this machine, which was busy");
  // A day later it is tried again; of two busy days the less busy one counts, and it is not tried each time.
  EXPECT_EQ(At(25 * kHour, 7, false).ms, 5);
  EXPECT_EQ(n_measured_, 2);
  EXPECT_EQ(At(26 * kHour, 1, true).ms, 5);
  EXPECT_EQ(n_measured_, 2);
  EXPECT_EQ(At(50 * kHour, 4, false).ms, 4);
  EXPECT_EQ(n_measured_, 3);
  // Until the machine is quiet: what is measured then counts, be it more.
  EXPECT_EQ(At(75 * kHour, 6, true).ms, 6);
  EXPECT_EQ(At(200 * kHour, 1, true).ms, 6);
  EXPECT_EQ(n_measured_, 4);
}

TEST_F(MachineCostsTest, WithoutAKeyNothingIsReadOrKept) {
  At(0, 3, true);
  const Start anew = At(0, 7, true, "");
  EXPECT_EQ(anew.ms, 7);
  EXPECT_THAT(anew.origin, Not(HasSubstr("kept")));
  EXPECT_EQ(At(0, 9, true).ms, 3);
}

TEST_F(MachineCostsTest, WhoStopsMeasuringIsAskedAgain) {
  MachineCosts costs(folder_.path(), "key", [] { return int64_t{0}; });
  costs.Known();
  const Calibration right = {.table = {.rows = {1}, .keys = {256}, .ms = {3}}};
  EXPECT_FALSE(costs.Measured([] { return Result<Calibration>(Cancelled("measuring was stopped")); }));
  EXPECT_EQ(costs.origin(), "guessed, and learned by the way");
  EXPECT_TRUE(costs.Measured([&] { return Result<Calibration>(right); }));
  EXPECT_THAT(costs.origin(), StartsWith("measured in "));
  // What is right is not measured again, and what fails, fails once.
  MachineCosts without(folder_.path(), "", [] { return int64_t{0}; });
  without.Known();
  EXPECT_FALSE(without.Measured([] { return Result<Calibration>(ResourceExhausted("no memory")); }));
  EXPECT_FALSE(without.Measured([&] { return Result<Calibration>(right); }));
  EXPECT_EQ(without.origin(), "guessed, and learned by the way, not measured: no memory");
}

}  // namespace
}  // namespace longspec
