// SPDX-License-Identifier: Apache-2.0
//
// The sequences of folders of feature shards, and batches of them as tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/feature_shard.h"
#include "train/fused_loss.h"
#include "train/layers.h"
#include "train/schedule.h"

namespace longspec::train {

class TargetStates;

// What a draft's kind reads of the target.
struct ShardNeeds {
  bool keys_values = false;   // of the last layer
  bool final_hidden = false;  // after the final norm
  std::vector<int> layers;    // the residual stream after these

  bool any() const { return keys_values || final_hidden || !layers.empty(); }
};

class FeatureSet {
 public:
  // Shards stay mapped. Sequences that are longer than the model's context, or in which nothing is to be
  // learned, are refused.
  // Several folders are of one target, with as many probabilities a token; they may keep different tensors,
  // or all none.
  static Result<FeatureSet> Open(std::span<const std::string> folders);

  const FeatureTarget& target() const { return shards_.front()->header().target; }
  int top_k() const { return shards_.front()->header().top_k; }
  int n_sequences() const { return static_cast<int>(sequences_.size()); }
  const FeatureSequence& sequence(int i) const { return sequences_[static_cast<size_t>(i)]; }
  const FeatureKeep& keep(int i) const { return *keeps_[static_cast<size_t>(i)]; }  // of that sequence
  std::vector<int64_t> lengths() const;                                             // by sequence
  // Whether the shards hold tokens alone: then batches have what `states` compute. REQUIRES: set before
  // batches that need some.
  bool only_tokens() const { return only_tokens_; }
  void ComputeWith(std::shared_ptr<const TargetStates> states) { states_ = std::move(states); }
  const TargetStates* states() const { return states_.get(); }
  // Nothing if every sequence has what is asked for; else which of it the shards lack, and how to make it.
  Status Has(const ShardNeeds& needs) const;
  bool has_final_hidden() const;
  // Tells apart what was made otherwise, of other texts, or is read in another order; in a few digits.
  std::string Digest() const;
  int64_t n_tokens() const { return n_tokens_; }
  int64_t longest() const { return longest_; }
  bool has_short() const { return has_short_; }  // a sequence that Anchor-Offset positions apply to

  // The n tokens that are to be predicted most often, equal ones by id; ascending. Fewer if there are no
  // more. Each folder counts as much as any other, so that little text of one kind (what the target writes)
  // is not outvoted. With `distill` and --top-k the target's probabilities count as far. Of those that are
  // never to be predicted, `further`, of this vocabulary, come first.
  std::vector<int64_t> FrequentTokens(int n, double distill = 0.0,
                                      std::span<const int32_t> further = {}) const;

 private:
  Status AddSequences(const FeatureShard& shard);

  std::vector<std::shared_ptr<const FeatureShard>> shards_;
  std::vector<FeatureSequence> sequences_;
  std::vector<const FeatureKeep*> keeps_;
  std::vector<int> folder_ends_;  // sequences before the end of each folder
  int64_t n_tokens_ = 0, longest_ = 0;
  bool has_short_ = false, only_tokens_ = false;
  std::shared_ptr<const TargetStates> states_;
};

// How labels become targets.
struct LabelOptions {
  double distill = 0.0;        // share of the target's own distribution, if the shards have it
  std::vector<int64_t> vocab;  // what the draft's head is reduced to, ascending; empty: every token
};

// Sequences one behind the other, without padding. n: rows, a token each.
struct Batch {
  Ends ends;                         // where each sequence ends
  at::Tensor tokens;                 // (n) int64
  at::Tensor keys, values;           // (n, n_head_kv, head_dim) f32; keys at positions 0, 1, ...
  at::Tensor final_hidden;           // (n, n_embd) f32
  std::map<int, at::Tensor> hidden;  // by layer, as final_hidden
  at::Tensor rows;                   // (n_labels) int64, ascending: which rows have a target
  at::Tensor labels;                 // (n) int64: the index in `rows`, -1 without a target
  Targets targets;                   // (n_labels, ...): what comes after the row's token

  int64_t n() const { return ends.empty() ? 0 : ends.back(); }
};
// On the CPU, but for what is computed, which is where it was computed.
Batch MakeBatch(const FeatureSet& set, std::span<const int> sequences, const ShardNeeds& needs,
                const LabelOptions& options);

}  // namespace longspec::train
