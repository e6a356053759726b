// SPDX-License-Identifier: Apache-2.0
//
// Attention over packed sequences against sums that are written out.
#include "train/attention.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <vector>

#include "train/row_kernels.h"

namespace longspec::train {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 8;

Heads Random(int64_t n) {
  at::manual_seed(11);
  return {at::randn({n, kHeads, kDim}), at::randn({n, kKvHeads, kDim}), at::randn({n, kKvHeads, kDim})};
}

// Of one query head over the keys and values that it sees.
at::Tensor Written(const at::Tensor& q, const std::vector<at::Tensor>& keys,
                   const std::vector<at::Tensor>& values) {
  if (keys.empty()) return at::zeros_like(q);
  const at::Tensor scores = at::mv(at::stack(keys), q) / std::sqrt(static_cast<double>(kDim));
  return at::mv(at::stack(values).t(), scores.softmax(0));
}

// Query i sees key j of its sequence if sees(i, j), both counted within it.
at::Tensor Whole(const Heads& h, const Ends& ends, const std::function<bool(int64_t, int64_t)>& sees) {
  at::Tensor result = at::empty_like(h.q);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t head = 0; head < kHeads; ++head) {
        std::vector<at::Tensor> keys, values;
        for (int64_t j = begin; j < end; ++j) {
          if (!sees(i - begin, j - begin)) continue;
          keys.push_back(h.k[j][head / 2]);
          values.push_back(h.v[j][head / 2]);
        }
        result[i][head].copy_(Written(h.q[i][head], keys, values));
      }
    }
    begin = end;
  }
  return result.flatten(1);
}

double Distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Attention, IsWhatItSays) {
  const at::NoGradGuard no_grad;
  const Heads h = Random(30);
  const Ends ends = {13, 14, 30};
  const auto causal = [](int64_t i, int64_t j) { return j <= i; };
  EXPECT_LT(Distance(CausalAttention(h, ends, Precision::kF32), Whole(h, ends, causal)), 1e-5);
  const auto windowed = [](int64_t i, int64_t j) { return j <= i && j >= i - 3; };
  EXPECT_LT(Distance(CausalAttention(h, ends, Precision::kF32, 3), Whole(h, ends, windowed)), 1e-5);
  for (const int64_t lag : {1, 4, 14}) {
    const auto lagged = [lag](int64_t i, int64_t j) { return j <= i - lag; };
    EXPECT_LT(Distance(LaggedAttention(h, ends, Precision::kF32, lag), Whole(h, ends, lagged)), 1e-5) << lag;
  }
}

TEST(SeenAttention, SeesSoManyKeysAndItsOwn) {
  const at::NoGradGuard no_grad;
  const int64_t n = 300;  // more than one block of queries
  const Heads h = Random(n);
  const Ends ends = {200, 201, n};
  std::vector<int64_t> seen;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t i = 0; i < end - begin; ++i)
      seen.push_back(i % 3 == 0 ? 0 : std::min(end - begin, i / 2 + 1));
    begin = end;
  }
  begin = 0;
  std::vector<int64_t> start;
  for (const int64_t end : ends) {
    for (; begin < end; ++begin) start.push_back(end == 200 ? 0 : end == 201 ? 200 : 201);
  }
  const std::vector<OwnStep> own = {{at::randn_like(h.k), at::randn_like(h.v)},
                                    {at::randn_like(h.k), at::randn_like(h.v)}};
  for (const size_t steps : {0, 1, 2}) {
    const auto part = std::span(own).first(steps);
    const at::Tensor got =
        SeenAttention(h, {ends, ends, seen}, part, Precision::kF32).view({n, kHeads, kDim});
    for (const int64_t i : {0, 1, 5, 129, 199, 200, 201, 202, 299}) {
      for (int64_t head = 0; head < kHeads; ++head) {
        std::vector<at::Tensor> keys, values;
        for (int64_t j = 0; j < seen[static_cast<size_t>(i)]; ++j) {
          keys.push_back(h.k[start[static_cast<size_t>(i)] + j][head / 2]);
          values.push_back(h.v[start[static_cast<size_t>(i)] + j][head / 2]);
        }
        for (const OwnStep& step : part) {
          keys.push_back(step.keys[i][head / 2]);
          values.push_back(step.values[i][head / 2]);
        }
        EXPECT_LT(Distance(got[i][head], Written(h.q[i][head], keys, values)), 1e-5) << steps << " " << i;
      }
    }
  }
}

// What is hidden has no influence at all, and nothing to see gives 0 with gradients that are numbers.
TEST(SeenAttention, HiddenKeysHaveNoInfluence) {
  Heads h = Random(6);
  const Ends ends = {6};
  const std::vector<int64_t> seen = {0, 2, 2, 2, 3, 3};
  const at::Tensor before = SeenAttention(h, {ends, ends, seen}, {}, Precision::kF32);
  Heads changed = {h.q, h.k.clone(), h.v.clone()};
  changed.k.slice(0, 3).mul_(1e6);
  changed.v.slice(0, 3).mul_(1e6);
  EXPECT_TRUE(SeenAttention(changed, {ends, ends, seen}, {}, Precision::kF32).equal(before));
  EXPECT_EQ(before[0].abs().sum().item<double>(), 0.0);
  for (at::Tensor* tensor : {&h.q, &h.k, &h.v}) tensor->requires_grad_(true);
  SeenAttention(h, {ends, ends, seen}, {}, Precision::kF32).square().sum().backward();
  for (const at::Tensor& tensor : {h.q, h.k, h.v}) EXPECT_TRUE(tensor.grad().isfinite().all().item<bool>());
  EXPECT_EQ(h.k.grad().slice(0, 3).abs().sum().item<double>(), 0.0);
  EXPECT_GT(h.k.grad().slice(0, 0, 3).abs().sum().item<double>(), 0.0);
}

// In bf16 results and gradients are those of f32 but for its rounding: for several lengths, windows, heads
// without a key, and own steps.
TEST(Bf16Attention, IsThatOfF32) {
  if (!HasRowKernels()) GTEST_SKIP() << "no AVX-512 BF16";
  at::manual_seed(12);
  const Ends ends = {1, 203, 330, 333};  // blocks of 128, and less
  const int64_t n = ends.back();
  Visibility sees = {.query_ends = ends, .key_ends = ends};
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t i = 0; i < end - begin; ++i) sees.seen.push_back(i % 50 == 49 ? 0 : i);
    begin = end;
  }
  const auto random = [&](int64_t heads) { return at::randn({n, heads, 64}).requires_grad_(true); };
  for (const int64_t window : {-1, 5, 100}) {
    for (const size_t steps : {0, 2}) {
      sees.window = window;
      const Heads h = {random(kHeads), random(kKvHeads), random(kKvHeads)};
      std::vector<OwnStep> own;
      std::vector<at::Tensor> inputs = {h.q, h.k, h.v};
      for (size_t i = 0; i < steps; ++i) {
        own.push_back({random(kKvHeads), random(kKvHeads)});
        inputs.push_back(own[i].keys);
        inputs.push_back(own[i].values);
      }
      const at::Tensor weights = at::randn({n, kHeads * 64});
      std::vector<std::vector<at::Tensor>> results;
      for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
        const at::Tensor out = SeenAttention(h, sees, own, precision);
        results.push_back({out});
        for (const at::Tensor& gradient : torch::autograd::grad({out}, inputs, {weights}))
          results.back().push_back(gradient);
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        const double far = ((results[1][i] - results[0][i]).norm() / results[0][i].norm()).item<double>();
        EXPECT_LT(far, 0.01) << window << " " << steps << " " << i;
      }
    }
  }
}

TEST(Bf16Attention, CausalAndLagged) {
  if (!HasRowKernels()) GTEST_SKIP() << "no AVX-512 BF16";
  at::manual_seed(13);
  const Ends ends = {70, 300};
  const Heads h = {at::randn({300, kHeads, 64}), at::randn({300, kKvHeads, 64}),
                   at::randn({300, kKvHeads, 64})};
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>() < 0.01;
  };
  for (const int64_t window : {-1, 20}) {
    EXPECT_TRUE(near(CausalAttention(h, ends, Precision::kBf16, window),
                     CausalAttention(h, ends, Precision::kF32, window)));
  }
  for (const int64_t lag : {1, 3, 80}) {
    EXPECT_TRUE(near(LaggedAttention(h, ends, Precision::kBf16, lag),
                     LaggedAttention(h, ends, Precision::kF32, lag)));
  }
}

// A whole batch at once, as on a GPU: values and gradients.
TEST(PaddedAttention, IsTheSame) {
  const Ends ends = {13, 14, 30, 43};
  Heads h = Random(43);
  for (at::Tensor* x : {&h.q, &h.k, &h.v}) x->requires_grad_(true);
  std::vector<int64_t> seen, causal, lagged;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t i = 0; i < end - begin; ++i) {
      seen.push_back(i % 3 == 0 ? 0 : i / 2 + 1);
      causal.push_back(i + 1);
      lagged.push_back(std::max<int64_t>(0, i - 1));
    }
    begin = end;
  }
  std::vector<OwnStep> own = {{at::randn_like(h.k), at::randn_like(h.v)},
                              {at::randn_like(h.k), at::randn_like(h.v)}};
  std::vector<at::Tensor> inputs = {h.q, h.k, h.v};
  for (OwnStep& step : own) {
    for (at::Tensor* x : {&step.keys, &step.values}) inputs.push_back(x->requires_grad_(true));
  }
  const auto compare = [&](const Visibility& sees, std::span<const OwnStep> steps, const char* what) {
    const at::Tensor one = SeenAttention(h, sees, steps, Precision::kF32);
    const at::Tensor other = PaddedAttention(h, sees, steps, Precision::kF32);
    EXPECT_LT(Distance(one, other), 1e-5) << what;
    const at::Tensor weights = at::randn_like(one);
    const auto gradients = [&](const at::Tensor& y) {
      return torch::autograd::grad({(y * weights).sum()}, inputs, {}, std::nullopt, false,
                                   /*allow_unused=*/true);
    };
    const auto of_one = gradients(one), of_other = gradients(other);
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_EQ(of_one[i].defined(), of_other[i].defined()) << what << i;
      if (!of_one[i].defined()) continue;
      EXPECT_LT(Distance(of_one[i], of_other[i]), 1e-4) << what << i;
    }
  };
  compare({ends, ends, causal}, {}, "causal");
  compare({ends, ends, causal, 3}, {}, "windowed");
  compare({ends, ends, lagged}, {}, "lagged");
  compare({ends, ends, seen}, {}, "seen");
  compare({ends, ends, seen}, own, "own");
  compare({ends, ends, causal}, own, "a chain's second step");
  // Fewer queries than keys.
  const Ends queries = {2, 2, 5, 6};
  const Heads few = {h.q.slice(0, 0, 6), h.k, h.v};
  const Visibility sees = {queries, ends, {3, 13, 0, 8, 16, 1}};
  EXPECT_LT(Distance(SeenAttention(few, sees, {}, Precision::kF32),
                     PaddedAttention(few, sees, {}, Precision::kF32)),
            1e-5);
}

}  // namespace
}  // namespace longspec::train
