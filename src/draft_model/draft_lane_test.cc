// SPDX-License-Identifier: Apache-2.0
//
// What a lane's operations compute, against loops over kernels, for any number of threads.
#include "draft_model/draft_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/counter_rng.h"
#include "base/size.h"
#include "base/thread_team.h"
#include "kernels/dispatch.h"
#include "kernels/packing.h"

namespace longspec {
namespace {

constexpr int kWidth = 64, kRows = 5;

std::vector<float> LaneNumbers(uint64_t seed, size_t n) {
  const RngStream rng = {.seed = seed, .purpose = RngPurpose::kTest};
  std::vector<float> numbers(n);
  for (size_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(2 * rng.Uniform(i) - 1);
  return numbers;
}

bool SameBits(const float* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

// A model of one matrix, (kWidth, n_in).
struct LaneRig {
  explicit LaneRig(int n_threads, int n_in = kWidth)
      : team(n_threads), stored(LaneNumbers(1, Z(kWidth) * Z(n_in))) {
    TensorView view = {.dtype = DType::kF32, .n_dims = 2, .shape = {n_in, kWidth, 1, 1}};
    view.data = reinterpret_cast<const std::byte*>(stored.data());
    view.n_bytes = stored.size() * sizeof(float);
    weights = kernels::PackedWeights(view);
    weights.Pack(view, 0, weights.n_groups());
    head.matrix.packed = weights.matrix();
    parts.lane = {.kernels = kernels::Available().front(), .team = &team};
  }
  DraftLane Lane() const { return {parts, size, {&head.matrix}}; }
  const kernels::KernelTable& table() const { return *parts.lane.kernels; }

  ThreadTeam team;
  std::vector<float> stored;
  kernels::PackedWeights weights;
  DraftHead head;
  SharedParts parts;
  LaneSize size = {.shape = {.n_embd = kWidth, .n_ff = kWidth},
                   .max_rows = kRows,
                   .n_logits = kWidth,
                   .extra = {2 * kWidth}};
};

TEST(DraftLane, OperationsAreTheirKernelsOfEachRow) {
  const std::vector<float> x = LaneNumbers(2, Z(kRows) * kWidth), a = LaneNumbers(3, x.size());
  const std::vector<float> norm_a = LaneNumbers(4, kWidth), norm_x = LaneNumbers(5, kWidth);
  for (const int n_threads : {1, 3}) {
    LaneRig rig(n_threads);
    DraftLane lane = rig.Lane();
    const float eps = rig.size.shape.rms_eps;
    for (const bool x_too : {false, true}) {
      std::memcpy(lane.x(), x.data(), x.size() * sizeof(float));
      lane.Run(kRows, [&](DraftPass& pass) {
        pass.NormBoth(a.data(), norm_a, lane.x(), norm_x, x_too, lane.extra(0));
      });
      std::vector<float> joined(2 * x.size()), normed(x.size());
      for (size_t r = 0; r < kRows; ++r) {
        float* const row = joined.data() + r * 2 * kWidth;
        rig.table().rms_norm(a.data() + r * kWidth, norm_a.data(), kWidth, eps, row);
        rig.table().rms_norm(x.data() + r * kWidth, norm_x.data(), kWidth, eps, row + kWidth);
        std::memcpy(normed.data() + r * kWidth, row + kWidth, kWidth * sizeof(float));
      }
      EXPECT_TRUE(SameBits(lane.extra(0), joined)) << n_threads;
      EXPECT_TRUE(SameBits(lane.x(), x_too ? normed : x)) << n_threads;
    }

    std::vector<float> expected = x;
    for (size_t r = 0; r < kRows; ++r) {
      std::vector<float> silu(kWidth);
      rig.table().swiglu(a.data() + r * kWidth, std::vector<float>(kWidth, 1.0F).data(), kWidth, silu.data());
      for (size_t d = 0; d < kWidth; ++d) expected[r * kWidth + d] += silu[d];
    }
    std::memcpy(lane.x(), x.data(), x.size() * sizeof(float));
    lane.Run(kRows, [&](DraftPass& pass) { pass.AddSilu(a.data(), lane.x()); });
    EXPECT_TRUE(SameBits(lane.x(), expected)) << n_threads;

    std::vector<float> in_place = x;
    lane.Run(kRows, [&](DraftPass& pass) {
      pass.NormInPlace(in_place.data(), {});
      pass.Of(in_place.data(), kWidth);
    });
    EXPECT_EQ(in_place, x);
    lane.Run(kRows, [&](DraftPass& pass) { pass.NormInPlace(in_place.data(), norm_x); });
    for (size_t r = 0; r < kRows; ++r) {
      rig.table().rms_norm(x.data() + r * kWidth, norm_x.data(), kWidth, eps, expected.data() + r * kWidth);
    }
    EXPECT_TRUE(SameBits(in_place.data(), expected)) << n_threads;
  }
}

TEST(DraftLane, ARowIsTheSameAloneAndWhateverTheThreads) {
  const std::vector<float> x = LaneNumbers(2, Z(kRows) * kWidth), norm = LaneNumbers(5, kWidth);
  std::vector<float> logits[2];
  std::vector<std::vector<TokenScore>> next[2];
  for (const int n_threads : {1, 3}) {
    LaneRig rig(n_threads);
    DraftLane lane = rig.Lane();
    std::memcpy(lane.x(), x.data(), x.size() * sizeof(float));
    std::vector<float> y(x.size(), 0.5F);
    const size_t which = n_threads == 1 ? 0 : 1;
    next[which].resize(kRows);
    lane.Run(kRows, [&](DraftPass& pass) {
      pass.Multiply(rig.head.matrix, pass.Norm(lane.x(), norm), y.data(), /*add=*/true);
      pass.Top(pass.Norm(y.data(), {}), rig.head, 3, next[which]);
    });
    logits[which].assign(lane.logits(), lane.logits() + x.size());
    // The last row alone.
    std::vector<float> last(kWidth, 0.5F);
    lane.Run(1, [&](DraftPass& pass) {
      pass.Multiply(rig.head.matrix, pass.Norm(x.data() + x.size() - kWidth, norm), last.data(), true);
    });
    EXPECT_EQ(std::memcmp(last.data(), y.data() + y.size() - kWidth, kWidth * sizeof(float)), 0);
  }
  EXPECT_TRUE(SameBits(logits[0].data(), logits[1]));
  for (size_t r = 0; r < kRows; ++r) {
    ASSERT_EQ(next[0][r].size(), 3U);
    const float* const row = logits[0].data() + r * kWidth;
    EXPECT_EQ(next[0][r][0].token, std::max_element(row, row + kWidth) - row);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(next[0][r][i].token, next[1][r][i].token);
  }
}

TEST(DraftLane, TakesNoMoreThanWasPlanned) {
  LaneRig rig(1);
  rig.size.attentions = {{.shape = {.n_head = 4, .n_kv_head = 2, .head_dim = 16}, .state_bytes = 1 << 16}};
  EXPECT_LE(rig.Lane().bytes(), DraftLane::Bytes(rig.size));
  LaneSize wider = rig.size;
  wider.extra.push_back(7);
  EXPECT_EQ(DraftLane::Bytes(wider), DraftLane::Bytes(rig.size) + Z(kRows) * 7 * sizeof(float));
}

}  // namespace
}  // namespace longspec
