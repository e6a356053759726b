// SPDX-License-Identifier: Apache-2.0
//
// The sequences of folders of feature shards, and batches of them as tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/feature_shard.h"
#include "train/fused_loss.h"
#include "train/schedule.h"

namespace longspec::train {

class FeatureSet {
 public:
  // Shards stay mapped. Sequences that are longer than the model's context, or in which nothing is to be
  // learned, are refused.
  // Several folders are of one target, with as many probabilities a token.
  static Result<FeatureSet> Open(std::span<const std::string> folders);

  const FeatureTarget& target() const { return shards_.front()->header().target; }
  int top_k() const { return shards_.front()->header().top_k; }
  int n_sequences() const { return static_cast<int>(sequences_.size()); }
  const FeatureSequence& sequence(int i) const { return sequences_[static_cast<size_t>(i)]; }
  std::vector<int64_t> lengths() const;  // by sequence
  int64_t n_tokens() const { return n_tokens_; }
  int64_t longest() const { return longest_; }
  bool has_short() const { return has_short_; }  // a sequence that Anchor-Offset positions apply to

  // The n tokens that are to be predicted most often, equal ones by id; ascending. Fewer if there are no
  // more. `distill` as in LabelOptions: the target's probabilities count as far.
  std::vector<int64_t> FrequentTokens(int n, double distill = 0.0) const;

 private:
  std::vector<std::shared_ptr<const FeatureShard>> shards_;
  std::vector<FeatureSequence> sequences_;
  int64_t n_tokens_ = 0, longest_ = 0;
  bool has_short_ = false;
};

// How labels become targets.
struct LabelOptions {
  double distill = 0.0;        // share of the target model's own distribution, as far as the shards hold it
  std::vector<int64_t> vocab;  // what the draft's head is reduced to, ascending; empty: every token
};

// Sequences padded to the longest of them. Padding is behind them, so nothing sees it.
struct Batch {
  int64_t n_tokens = 0;     // without padding
  at::Tensor tokens;        // (batch, length) int64
  at::Tensor keys, values;  // (batch, length, n_head_kv, head_dim) f32; keys at positions 0, 1, ...
  at::Tensor rows;          // (n) int64, ascending: which of the batch * length rows have a target
  SparseTargets targets;    // (n, ...)
};
Batch MakeBatch(const FeatureSet& set, std::span<const int> sequences, const LabelOptions& options);

}  // namespace longspec::train
