// SPDX-License-Identifier: Apache-2.0
//
// Rotary tables against angles in long double, and their bits against those on record: a saved session holds
// keys that were rotated by them.
#include "network/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"

namespace longspec {
namespace {

constexpr int kPositions[] = {0,     1,     2,     3,      7,      255,    256,    1023,   4095,   8191,
                              16383, 32767, 65536, 131071, 262143, 524287, 700001, 999999, 1000000};

RopeConfig Plain(int n_rot, double base) { return {.n_rot = n_rot, .freq_base = base}; }

RopeConfig Yarn() {
  RopeConfig config = Plain(128, 1e6);
  config.scaling = RopeOptions::Scaling::kYarn;
  config.scale = 4;
  config.orig_ctx = 32768;
  return config;
}

std::vector<float> Rows(const RopeConfig& config) {
  const RopeTable table(config);
  std::vector<float> rows;
  for (const int position : kPositions) {
    rows.resize(rows.size() + static_cast<size_t>(config.n_rot));
    table.Row(position, rows.data() + rows.size() - static_cast<size_t>(config.n_rot));
  }
  return rows;
}

TEST(RopeTable, RoundsWhatTheAngleHas) {
  for (const RopeConfig& config : {Plain(64, 10000.0), Plain(128, 500000.0), Plain(96, 1e6), Yarn()}) {
    const RopeTable table(config);
    const std::vector<float> rows = Rows(config);
    size_t at = 0;
    for (const int position : kPositions) {
      for (const double frequency : table.frequencies()) {
        const long double angle = position * frequency;  // the product is rounded to double
        for (const long double exact :
             {std::cos(angle) * table.magnitude(), std::sin(angle) * table.magnitude()}) {
          const auto near = static_cast<float>(exact);
          const float unit = std::nextafter(std::fabs(near), 10.0F) - std::fabs(near);
          // Half a unit, but where double's own rounding decides a tie.
          ASSERT_LE(std::fabs(rows[at] - exact), 0.500001L * unit) << position << " " << frequency;
          ++at;
        }
      }
    }
    ASSERT_EQ(at, rows.size());
  }
}

TEST(RopeTable, FrequenciesArePowersOfTheBase) {
  const RopeTable table(Plain(128, 500000.0));
  for (size_t i = 0; i < 64; ++i) {
    const long double exact =
        std::pow(500000.0L, static_cast<long double>(-2.0 * static_cast<double>(i) / 128));
    EXPECT_LT(std::fabs(table.frequencies()[i] / exact - 1), 1.2e-16L) << i;
  }
}

TEST(RopeTable, BitsAreThoseOnRecord) {
  const auto hash = [](const RopeConfig& config) {
    const std::vector<float> rows = Rows(config);
    return ToHex(HashOf(std::as_bytes(std::span(rows))));
  };
  EXPECT_EQ(hash(Plain(64, 10000.0)), "cccc495da04ac9656edb12f690b507fb");
  EXPECT_EQ(hash(Plain(128, 500000.0)), "0174ee020c02aa61608b9a138cfcb0e5");
  EXPECT_EQ(hash(Yarn()), "baef8e3902715399a8a900accbe819ea");
}

}  // namespace
}  // namespace longspec
