// SPDX-License-Identifier: Apache-2.0
//
// Lists of strings come back from bytes as they were.
#include "formats/string_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspec {
namespace {

using ::testing::ElementsAreArray;
using ::testing::StartsWith;

TEST(StringList, ComesBackAsItWas) {
  const std::vector<std::string> any = {"user", std::string("\0\n\xFF", 3), "", "x"};
  const auto back = UnpackStrings(PackStrings(any), "x");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_THAT(*back, ElementsAreArray(any));
  EXPECT_TRUE(UnpackStrings(PackStrings({}), "x")->empty());
}

TEST(StringList, LengthsThatCannotBeAreRefused) {
  const std::vector<std::string> two = {"one", "two"};
  const std::vector<std::byte> good = PackStrings(two);
  for (size_t n = 0; n < good.size(); ++n) {
    const auto cut = UnpackStrings(std::span(good).first(n), "cut");
    ASSERT_EQ(cut.status().code(), StatusCode::kCorrupt) << n;
    EXPECT_THAT(cut.status().message(), StartsWith("cut: "));
  }
  std::vector<std::byte> more = good;
  more.push_back({});
  EXPECT_EQ(UnpackStrings(more, "x").status().code(), StatusCode::kCorrupt);
  for (const size_t at : {0U, 4U, 11U}) {  // the count and both lengths
    std::vector<std::byte> huge = good;
    huge[at + 3] = std::byte{0xFF};
    EXPECT_EQ(UnpackStrings(huge, "x").status().code(), StatusCode::kCorrupt) << at;
  }
}

}  // namespace
}  // namespace longspec
