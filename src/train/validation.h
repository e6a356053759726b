// SPDX-License-Identifier: Apache-2.0
//
// How well a draft foresees text that it is not trained on, by the position in the sequence and by how far
// the target's keys lag behind: what a draft proposes first is lag 1, what it proposes after that lag 2, and
// so on.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "train/draft_net.h"
#include "train/feature_set.h"

namespace longspec::train {

struct ValidationBucket {
  int64_t begin = 0, end = 0;  // positions
  int64_t rows = 0;            // tokens that are to be predicted
  double loss = 0.0;           // mean at lag 1
  // By lag - 1: the share of rows whose most probable token is the target's, or that of the text if the
  // features hold no probabilities. With a reduced vocabulary others count as wrong.
  std::vector<double> agreement;
};

struct Validation {
  ValidationBucket all;
  std::vector<ValidationBucket> buckets;  // those that have rows; each twice as long as the one before
};

// Tokens drafted right in a row, one after the other, if each were right as often as it is at its lag.
double ExpectedAccepted(const ValidationBucket& bucket);

// The lags that are looked at, whatever lags were trained: a chain of as many tokens.
inline constexpr int kValidatedLags = 4;

// Sequences at plain positions, lags 1 .. kValidatedLags. Nothing is changed; one thread.
Validation Validate(const DraftNet& net, const at::Tensor& embedding, const at::Tensor& head,
                    const FeatureSet& set, const LabelOptions& labels);

}  // namespace longspec::train
