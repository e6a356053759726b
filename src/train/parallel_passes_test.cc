// SPDX-License-Identifier: Apache-2.0
//
// Sums of passes do not depend on threads; errors, exceptions and a wish to stop reach the caller.
#include "train/parallel_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace longspec::train {
namespace {

using ::testing::HasSubstr;

// Later passes are done sooner.
PassSum Pass(int i) {
  std::this_thread::sleep_for(std::chrono::milliseconds(8 - i));
  return {.gradients = {at::full({3}, 1.0F / static_cast<float>(3 + i)),
                        i % 2 == 1 ? at::full({2}, static_cast<float>(i)) : at::Tensor()},
          .loss = 0.1 * i,
          .tokens = i,
          .macs = 2.0 * i};
}

PassSum Sum(int threads) {
  PassSum sum;
  const auto complete = RunPasses(
      8, threads, [](int i) -> Result<PassSum> { return Pass(i); }, [](const PassSum&) { return true; },
      &sum);
  EXPECT_TRUE(complete.ok() && *complete);
  return sum;
}

TEST(RunPasses, AddsInOrder) {
  const PassSum one = Sum(1);
  EXPECT_EQ(one.tokens, 28);
  EXPECT_EQ(one.macs, 56.0);
  EXPECT_NEAR(one.loss, 2.8, 1e-12);
  EXPECT_EQ(one.gradients[1][0].item<float>(), 16.0F);
  for (const int threads : {2, 3, 20}) {
    const PassSum many = Sum(threads);
    EXPECT_EQ(many.loss, one.loss);
    EXPECT_TRUE(at::equal(many.gradients[0], one.gradients[0]));
    EXPECT_TRUE(at::equal(many.gradients[1], one.gradients[1]));
  }
}

TEST(RunPasses, StopsAndFails) {
  for (const int threads : {1, 3}) {
    PassSum sum;
    std::atomic<int> begun = 0;
    const auto pass = [&](int i) -> Result<PassSum> {
      ++begun;
      return Pass(i);
    };
    const auto stop = [](const PassSum&) { return false; };
    const auto stopped = RunPasses(8, threads, pass, stop, &sum);
    ASSERT_TRUE(stopped.ok());
    EXPECT_FALSE(*stopped);
    EXPECT_LT(begun, 8);
    const auto go_on = [](const PassSum&) { return true; };
    const auto bad = [](int i) -> Result<PassSum> {
      if (i == 2) return Corrupt("pass 2");
      return Pass(i);
    };
    EXPECT_THAT(RunPasses(8, threads, bad, go_on, &sum).status().message(), HasSubstr("pass 2"));
    const auto thrown = [](int i) -> Result<PassSum> {
      if (i == 1) throw std::runtime_error("no memory");
      return Pass(i);
    };
    EXPECT_THROW((void)RunPasses(8, threads, thrown, go_on, &sum), std::runtime_error);
  }
}

TEST(PeakGigaMacs, IsANumber) { EXPECT_GT(PeakGigaMacs(2), 0.01); }

}  // namespace
}  // namespace longspec::train
