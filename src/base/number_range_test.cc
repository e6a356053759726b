// SPDX-License-Identifier: Apache-2.0
//
// A range of numbers says in few words what is wrong with a number outside.
#include "base/number_range.h"

#include <gtest/gtest.h>

namespace longspec {
namespace {

TEST(NumberRange, SaysWhatIsWrongInFewWords) {
  EXPECT_EQ(NumberRange(0).Check("-1"), "must be 0 or more, not -1");
  EXPECT_EQ(NumberRange(0).Check("0"), "");
  EXPECT_EQ(NumberRange(0).Check("1e300"), "");
  EXPECT_EQ(NumberRange(0, 1).Check("2"), "must be from 0 to 1, not 2");
  EXPECT_EQ(NumberRange(0, 1).Check("0.5"), "");
  EXPECT_EQ(NumberRange(1, 64).Check("0"), "must be from 1 to 64, not 0");
  EXPECT_EQ(NumberRange(1, 65536).Check("100000"), "must be from 1 to 65536, not 100000");
  EXPECT_EQ(NumberRange(-1, 1 << 30).Check("-2"), "must be -1 or more, not -2");
  EXPECT_EQ(NumberRange(-1, 1 << 30).Check("99999999999"), "must be at most 1073741824, not 99999999999");
  EXPECT_EQ(NumberRange::Positive().Check("0"), "must be more than 0, not 0");
  EXPECT_EQ(NumberRange::Positive().Check("1e-300"), "");
  for (const char* none : {"", "x", "1x", "nan", "inf", "1e999"})
    EXPECT_EQ(NumberRange(0).Check(none), "must be a number, not " + std::string(none));
}

// What help says of an option's values; a bound that is only there for safety is not shown.
TEST(NumberRange, DescribesItself) {
  EXPECT_EQ(NumberRange(0, 1 << 30).Describe(), "0 or more");
  EXPECT_EQ(NumberRange(0.0, 1.0).Describe(), "0 to 1");
  EXPECT_EQ(NumberRange::Positive().Describe(), "more than 0");
}

}  // namespace
}  // namespace longspec
