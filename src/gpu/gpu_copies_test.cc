// SPDX-License-Identifier: Apache-2.0
//
// What is chosen from a row of logits on a card takes less of the row to the host than all of it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/size.h"
#include "gpu/gpu_logits.h"
#include "kernels/testing/emulated_runtime.h"

namespace longspec {
namespace {

TEST(GpuCopies, OfARowOfLogitsAreFew) {
  constexpr int kVocab = 20000;
  const auto card = std::make_shared<kernels::testing::EmulatedRuntime>();
  std::vector<float> row;
  for (int i = 0; i < kVocab; ++i) row.push_back(static_cast<float>(i % 97) / 16.0F);
  GpuBuffer there(*card, row.size() * sizeof(float));
  card->Copy(row.data(), there.data(), row.size() * sizeof(float));
  GpuLogits logits(*card);
  const LogitRows rows = logits.Begin(there.as<float>(), 1, kVocab);

  // Bytes that are copied for a choice, as shares of the row's.
  const auto copied = [&](const SamplingOptions& options, bool masked) {
    const auto sampler = Sampler::Create(options, kVocab);
    EXPECT_TRUE(sampler.ok());
    const std::vector<int32_t> committed = {4, 5, 6};
    const std::vector<uint32_t> mask(Z(kVocab / 32), 0x80402010U);
    Sampler::Scratch scratch;
    const TokenHistory history = {.committed = committed, .drafted = {}};
    const int64_t before = card->host_copied_bytes();
    const int32_t token = masked ? rows[0].Choose(*sampler, history, scratch, mask)
                                 : rows[0].Choose(*sampler, history, scratch);
    EXPECT_NE(token, kNoToken);
    return static_cast<double>(card->host_copied_bytes() - before) / (kVocab * sizeof(float));
  };
  const SamplingOptions greedy = {.temperature = 0, .seed = 1}, usual = {.seed = 1};
  SamplingOptions drawn = {.top_k = 0, .top_p = 1, .min_p = 0, .seed = 1}, wide = {.top_k = 0, .seed = 1};
  SamplingOptions penalised = greedy;
  penalised.repeat_penalty = 2.0F;
  penalised.logit_bias = {{8, 1.0F}};
  // A bit for each token is one part in 32.
  for (const SamplingOptions& options : {greedy, drawn, penalised}) {
    EXPECT_LT(copied(options, false), 0.01);
    EXPECT_LT(copied(options, true), 0.04);
  }
  EXPECT_LT(copied(usual, false), 0.05);
  EXPECT_LT(copied(usual, true), 0.08);
  EXPECT_GE(copied(wide, false), 1.0);
}

}  // namespace
}  // namespace longspec
