// SPDX-License-Identifier: Apache-2.0
#include "train/feature_regression.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstdio>

#include "train/fused_loss.h"

namespace longspec::train {

at::Tensor AddNoise(const at::Tensor& states, const Ends& ends, const TraineeOptions& options,
                    uint64_t seed) {
  if (options.noise == StateNoise::kNone || options.noise_scale == 0.0) return states;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  at::Tensor noise = at::empty(states.sizes(), at::kFloat);
  if (options.noise == StateNoise::kGaussian) {
    noise.normal_(0.0, options.noise_scale, generator);
  } else {
    int64_t begin = 0;
    for (const int64_t end : ends) {
      const double reach = 0.5 * options.noise_scale * 512.0 / static_cast<double>(end - begin);
      if (end > begin) noise.slice(0, begin, end).uniform_(-reach, reach, generator);
      begin = end;
    }
  }
  return states + noise.to(states.device());
}

LabelledStates SelectLabelled(const PlacedBatch& batch, const at::Tensor& states, const at::Tensor& rows) {
  const at::Tensor labels = batch.labels.index_select(0, rows);
  const at::Tensor kept = labels.ge(0).nonzero().squeeze(1);
  return {.states = states.index_select(0, kept),
          .rows = rows.index_select(0, kept),
          .labels = labels.index_select(0, kept)};
}

at::Tensor EntropyLoss(const LabelledStates& labelled, const Targets& targets, const at::Tensor& head) {
  const auto n = static_cast<double>(labelled.n());
  return FusedCrossEntropy(labelled.states, head, targets.Select(labelled.labels)) * n;
}

at::Tensor RegressionLoss(const LabelledStates& labelled, const PlacedBatch& batch) {
  const at::Tensor states = batch.final_hidden.index_select(0, labelled.rows);
  return at::smooth_l1_loss(labelled.states, states) * static_cast<double>(labelled.n());
}

std::string DescribeRegression(const TraineeOptions& o) {
  char text[96];
  const char* noise = o.noise == StateNoise::kNone      ? "none"
                      : o.noise == StateNoise::kUniform ? "uniform"
                                                        : "gauss";
  std::snprintf(text, sizeof(text), "--regression %g --noise %s --noise-scale %g", o.regression, noise,
                o.noise_scale);
  return text;
}

}  // namespace longspec::train
