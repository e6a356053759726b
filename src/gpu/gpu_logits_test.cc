// SPDX-License-Identifier: Apache-2.0
//
// What is asked of rows of logits in a card's memory is what their copies on the host would answer.
#include "gpu/gpu_logits.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/size.h"
#include "kernels/testing/card_under_test.h"

namespace longspec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kVocab = 3001;  // does not come out even, whatever the parts

// In both memories.
class GpuLogitsTest : public ::testing::Test {
 protected:
  // Rows of few numbers, so that many are equal.
  LogitRows Write(int n, unsigned seed = 1) {
    std::minstd_rand random(seed);
    host_.clear();
    for (int i = 0; i < n * kVocab; ++i) host_.push_back(static_cast<float>(random() % 64) / 8.0F - 4.0F);
    return Bring(n);
  }
  LogitRows Bring(int n) {
    there_.Reserve(*card_, host_.size() * sizeof(float));
    card_->Copy(host_.data(), there_.data(), host_.size() * sizeof(float));
    return logits_.Begin(there_.as<float>(), n, kVocab);
  }
  LogitRows OnHost(int n) const { return {host_.data(), n, kVocab}; }

  const std::shared_ptr<Runtime> card_ = kernels::testing::CardUnderTest();
  std::vector<float> host_;
  GpuBuffer there_;
  GpuLogits logits_{*card_};
};

TEST_F(GpuLogitsTest, ChoicesAreTheHosts) {
  SamplingOptions greedy = {.temperature = 0, .seed = 5};
  SamplingOptions drawn = {.temperature = 1.3F, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 5};
  SamplingOptions filtered = {.temperature = 0.9F, .seed = 6};
  SamplingOptions wide = filtered;
  wide.top_k = 0;
  wide.top_p = 0.4F;
  std::vector<SamplingOptions> all = {greedy, drawn, filtered, wide};
  for (SamplingOptions changed : {greedy, drawn, filtered}) {
    changed.repeat_penalty = 1.5F;
    changed.frequency_penalty = 0.25F;
    all.push_back(changed);
    changed.logit_bias = {{8, 30.0F}, {9, -kInfinity}, {kVocab - 1, 7.9F}, {4, -1.0F}};
    all.push_back(changed);
  }
  const std::vector<uint32_t> some(Z((kVocab + 31) / 32), 0x10204081U), few(5, 0x8000U), none;
  std::vector<uint32_t> last(Z((kVocab + 31) / 32));
  last.back() = 0xFFFFFFFFU;  // tokens that there are not, too
  const std::vector<int32_t> committed = {4, 5, 6, 7, -1, kVocab, 5};
  LogitRows far = Write(3);
  host_.back() = 4.0F;
  far = Bring(3);
  const LogitRows near = OnHost(3);
  for (const SamplingOptions& options : all) {
    const auto sampler = Sampler::Create(options, kVocab);
    ASSERT_TRUE(sampler.ok());
    Sampler::Scratch scratch;
    for (int i = 0; i < 6; ++i) {
      const std::vector<int32_t> drafted(Z(i / 3), 9);
      const TokenHistory history = {.committed = committed, .drafted = drafted};
      EXPECT_EQ(far[i % 3].Choose(*sampler, history, scratch),
                near[i % 3].Choose(*sampler, history, scratch));
      for (const std::vector<uint32_t>& mask : {some, few, last, none}) {
        EXPECT_EQ(far[i % 3].Choose(*sampler, history, scratch, mask),
                  near[i % 3].Choose(*sampler, history, scratch, mask));
      }
    }
  }
}

// A bias after which a logit is infinite.
TEST_F(GpuLogitsTest, LogitsThatGrowTooLargeAreTheHosts) {
  Write(1);
  host_[7] = 3e38F;
  const LogitRows far = Bring(1), near = OnHost(1);
  const SamplingOptions options = {.temperature = 0, .logit_bias = {{7, 3e38F}, {9, 3e38F}}, .seed = 5};
  const auto sampler = Sampler::Create(options, kVocab);
  ASSERT_TRUE(sampler.ok());
  Sampler::Scratch scratch;
  EXPECT_EQ(far[0].Choose(*sampler, {}, scratch), near[0].Choose(*sampler, {}, scratch));
}

TEST_F(GpuLogitsTest, TheBestAreTheHosts) {
  Write(2);
  host_[Z(kVocab - 1)] = 9.0F;
  host_[Z(kVocab - 2)] = 9.0F;
  for (int i = 5; i < kVocab; ++i) host_[Z(kVocab + i)] = -kInfinity;  // of the second row few can occur
  const LogitRows far = Bring(2), near = OnHost(2);
  for (const int row : {0, 1}) {
    for (const size_t k : {size_t{1}, size_t{8}, size_t{16}, size_t{60}}) {
      std::vector<int32_t> expected(k), actual(k);
      std::vector<float> expected_logits(k), actual_logits(k);
      const int n = near[row].Best(expected);
      EXPECT_EQ(far[row].Best(actual), n);
      expected.resize(Z(n));
      actual.resize(Z(n));
      EXPECT_EQ(actual, expected);
      float expected_share = 0, actual_share = 1;
      actual.resize(k);
      expected.resize(k);
      EXPECT_EQ(near[row].Best(expected, expected_logits, &expected_share),
                far[row].Best(actual, actual_logits, &actual_share));
      EXPECT_EQ(actual_share, expected_share);
      EXPECT_EQ(actual_logits, expected_logits);
    }
  }
}

TEST_F(GpuLogitsTest, ChecksAreTheHosts) {
  Write(5);
  host_[Z(kVocab + 7)] = std::numeric_limits<float>::quiet_NaN();
  host_[Z(2 * kVocab + 2999)] = kInfinity;
  host_[Z(2 * kVocab + 2500)] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < kVocab; ++i) host_[Z(3 * kVocab + i)] = -kInfinity;
  host_[Z(4 * kVocab)] = -kInfinity;
  const LogitRows far = Bring(5), near = OnHost(5);
  int n_wrong = 0;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(far[i].Check(Z(i)).message(), near[i].Check(Z(i)).message()) << i;
    n_wrong += near[i].Check(0).ok() ? 0 : 1;
  }
  EXPECT_EQ(n_wrong, 3);
  const auto greedy = Sampler::Create({.temperature = 0, .seed = 5}, kVocab);
  Sampler::Scratch scratch;
  EXPECT_EQ(far[3].Choose(*greedy, {}, scratch), kNoToken);
  EXPECT_EQ(near[3].Choose(*greedy, {}, scratch), kNoToken);
}

TEST_F(GpuLogitsTest, RowsOfTheNextPassAreOtherRows) {
  const auto greedy = Sampler::Create({.temperature = 0, .seed = 5}, kVocab);
  Sampler::Scratch scratch;
  for (const unsigned seed : {1U, 2U}) {
    const LogitRows far = Write(2, seed);
    for (const int row : {1, 0})
      EXPECT_EQ(far[row].Choose(*greedy, {}, scratch), OnHost(2)[row].Choose(*greedy, {}, scratch));
  }
}

}  // namespace
}  // namespace longspec
