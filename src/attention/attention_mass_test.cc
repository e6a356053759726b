// SPDX-License-Identifier: Apache-2.0
//
// The share of attention that positions get is the softmax, by a loop over all of them.
#include "attention/attention_mass.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "attention/testing/store_row.h"
#include "base/aligned_buffer.h"
#include "kernels/dispatch.h"

namespace longspec {
namespace {

// Against softmax written out, for every type and table; the last chunk is not whole.
TEST(AttentionMass, IsSoftmaxAveragedOverHeads) {
  constexpr int kHeads = 4, kKvHeads = 2, kDim = 32, kPositions = 300;
  const AttentionShape shape = {.n_head = kHeads, .n_kv_head = kKvHeads, .head_dim = kDim, .scale = 0.25F};
  for (const CacheType type : {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0}) {
    const KvLayout layout = {.k_type = type, .v_type = type, .n_kv_head = kKvHeads, .head_dim = kDim};
    std::vector<AlignedBuffer> chunks;
    std::vector<std::byte*> bases;
    for (int i = 0; i < 2; ++i) bases.push_back(chunks.emplace_back(layout.layer_bytes()).data());
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    const KvWriter writer = {.layout = layout, .chunks = bases.data()};
    for (int p = 0; p < kPositions; ++p) {
      for (int head = 0; head < kKvHeads; ++head) {
        float k[kDim], v[kDim] = {};
        for (float& x : k) x = normal(rng);
        testing::StoreRow(writer, p, head, k, v);
      }
    }
    const KvSpan span = {.layout = layout, .chunks = bases.data(), .n_committed = kPositions};
    std::vector<float> q(static_cast<size_t>(kHeads) * kDim);
    for (float& x : q) x = normal(rng);
    std::vector<double> expected(kPositions);
    for (int h = 0; h < kHeads; ++h) {
      std::vector<double> weight(kPositions);
      double sum = 0;
      for (int p = 0; p < kPositions; ++p) {
        double dot = 0;
        for (int d = 0; d < kDim; ++d) {
          dot += double{q[static_cast<size_t>(h * kDim + d)]} * double{span.KeyAt(p, h / 2, d)};
        }
        sum += weight[static_cast<size_t>(p)] = std::exp(dot * 0.25);
      }
      for (int p = 0; p < kPositions; ++p) {
        expected[static_cast<size_t>(p)] += weight[static_cast<size_t>(p)] / sum / kHeads;
      }
    }
    for (const kernels::KernelTable* table : kernels::Available()) {
      std::vector<float> mass;
      AttentionMass(*table, shape, span, q, &mass);
      ASSERT_EQ(mass.size(), expected.size());
      double sum = 0;
      for (size_t p = 0; p < mass.size(); ++p) {
        EXPECT_NEAR(mass[p], expected[p], 1e-5) << p;
        sum += double{mass[p]};
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

}  // namespace
}  // namespace longspec
