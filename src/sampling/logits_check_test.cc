// SPDX-License-Identifier: Apache-2.0
//
// A row in which no token can be chosen is an error that names the logit.
#include "sampling/logits_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/testing/floats.h"

namespace longspec::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckLogits, NumbersAndForbiddenTokensAreFine) {
  EXPECT_TRUE(CheckLogits(std::vector<float>{0.0F}, 0).ok());
  EXPECT_TRUE(CheckLogits(std::vector<float>{-kInfinity, std::numeric_limits<float>::lowest()}, 0).ok());
  std::vector<float> row(100, -kInfinity);
  row[99] = std::numeric_limits<float>::max();
  EXPECT_TRUE(CheckLogits(row, 0).ok());
}

TEST(CheckLogits, OneWrongLogitAnywhereIsNamed) {
  for (const size_t n : {1, 15, 16, 17, 33, 100}) {
    for (size_t at = 0; at < n; ++at) {
      for (const float wrong : {kNan, -kNan, std::numeric_limits<float>::signaling_NaN(), kInfinity}) {
        std::vector<float> row(n, 1.0F);
        row[at] = wrong;
        const Status status = CheckLogits(row, 1234);
        ASSERT_EQ(status.code(), StatusCode::kCorrupt) << n << " " << at;
        ASSERT_THAT(
            status.message(),
            AllOf(HasSubstr("position 1234"), HasSubstr("1 of " + std::to_string(n)),
                  HasSubstr((wrong > 0 ? "infinity for token " : "nan for token ") + std::to_string(at))));
      }
    }
  }
}

TEST(CheckLogits, CountsAllAndNamesTheFirst) {
  std::vector<float> row(40, kNan);
  row[0] = row[1] = -kInfinity;
  row[2] = kInfinity;
  EXPECT_THAT(CheckLogits(row, 0).message(), HasSubstr("38 of 40, the first is infinity for token 2"));
}

TEST(CheckLogits, SomeTokenMustBePossible) {
  EXPECT_THAT(CheckLogits(std::vector<float>(5, -kInfinity), 7).message(),
              AllOf(HasSubstr("position 7"), HasSubstr("all minus infinity")));
}

}  // namespace
}  // namespace longspec::testing
