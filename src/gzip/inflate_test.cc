// SPDX-License-Identifier: Apache-2.0
//
// What was compressed comes back, no more of it than is asked for, and nothing of what is damaged.
#include "gzip/inflate.h"

#include <gtest/gtest.h>

#include <optional>

#include "gzip/testing/compressed.h"

namespace longspec {
namespace {

using testing::Compressed;

std::optional<std::string> Inflated(const std::string& coded, size_t most_bytes = 1 << 20) {
  std::string out;
  if (!Inflate(coded, most_bytes, &out)) return std::nullopt;
  return out;
}

TEST(Inflate, BothFormsComeBack) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += std::to_string(i);
  for (const bool gzip : {true, false}) {
    EXPECT_EQ(Inflated(Compressed("", gzip)), "");
    EXPECT_EQ(Inflated(Compressed(text, gzip)), text);
  }
  EXPECT_EQ(Inflated(Compressed("one ") + Compressed("after another")), "one after another");
}

TEST(Inflate, WhatIsDamagedIsNothing) {
  const std::string good = Compressed(std::string(300, 'a') + "bcd");
  EXPECT_EQ(Inflated(good.substr(0, good.size() - 1)), std::nullopt);
  EXPECT_EQ(Inflated(good + "x"), std::nullopt);
  EXPECT_EQ(Inflated("{}"), std::nullopt);
  EXPECT_EQ(Inflated(""), std::nullopt);
}

// Whoever asks learns of a longer text by its first bytes.
TEST(Inflate, NoMoreIsMadeThanIsAskedFor) {
  const std::string bomb = Compressed(std::string(size_t{8} << 20, 'a'));
  std::string out;
  EXPECT_FALSE(Inflate(bomb, 1000, &out));
  EXPECT_EQ(out, std::string(1000, 'a'));
}

}  // namespace
}  // namespace longspec
