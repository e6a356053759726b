// SPDX-License-Identifier: Apache-2.0
//
// Bodies over several rows and attention of passes, on a card.
#include "cuda/testing/body_cases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace longspec::cuda {
namespace {

using ::testing::IsEmpty;

TEST(BodiesOnCardTest, Rows) { EXPECT_THAT(WrongRows(), IsEmpty()); }
TEST(BodiesOnCardTest, AttentionOfTypes) { EXPECT_THAT(WrongAttentionOfTypes(), IsEmpty()); }
TEST(BodiesOnCardTest, AttentionOfRows) { EXPECT_THAT(WrongAttentionOfRows(), IsEmpty()); }
TEST(BodiesOnCardTest, AttentionOfSizes) { EXPECT_THAT(WrongAttentionOfSizes(), IsEmpty()); }

}  // namespace
}  // namespace longspec::cuda
