// SPDX-License-Identifier: Apache-2.0
//
// For tests of kinds: a draft and batches of a rig, as a run has them.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "train/feature_set.h"
#include "train/files.h"
#include "train/pass.h"
#include "train/slots.h"
#include "train/target_weights.h"
#include "train/testing/rig.h"
#include "train/trainee_kinds.h"

namespace longspec::train::testing {

// The target's, and what of its head a draft that chooses among `vocab` (empty: all) learns from.
inline FrozenHeads FrozenOf(const FrozenParts& parts, const std::vector<int64_t>& vocab) {
  const at::Tensor head = vocab.empty() ? parts.head : parts.head.index_select(0, at::tensor(vocab));
  return {.embedding = parts.embedding, .head = head, .loss_head = head, .whole_head = parts.head};
}

// Of the rig's options and target, with random weights from `seed`.
inline std::unique_ptr<Trainee> TraineeOf(const Rig& rig, uint64_t seed = 7,
                                          std::vector<int64_t> vocab = {}) {
  at::set_num_threads(1);  // as a run's passes have it: more only wait for each other
  const auto set = FeatureSet::Open(rig.options.features);
  const auto file = GgufFile::Open(rig.options.model);
  const auto kind = FindTraineeKind(rig.options.draft.kind);
  EXPECT_TRUE(set.ok() && file.ok() && kind.ok());
  const auto parts = LoadFrozenParts(**file, set->target());
  const auto n_layer = CountLayers(**file);
  EXPECT_TRUE(parts.ok() && n_layer.ok());
  TraineeOptions options = rig.options.draft;
  std::shared_ptr<const Sibling> sibling;
  if (!options.sibling.empty()) {
    const auto opened = GgufFile::Open(options.sibling);
    const auto loaded = LoadSibling(*opened, **file, set->target(), vocab, at::kCPU, at::kFloat);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    sibling = *loaded;
  }
  EXPECT_TRUE((*kind)->resolve(&options, set->target(), *n_layer).ok());
  return (*kind)->make({.target = set->target(),
                        .n_layer = *n_layer,
                        .model = *file,
                        .sibling = sibling,
                        .frozen = FrozenOf(*parts, vocab),
                        .vocab = vocab,
                        .options = options,
                        .seed = seed});
}

// Sequences of the rig's features with all that they hold, at plain positions or where `draw` has them.
inline PlacedBatch BatchOf(const Rig& rig, const std::vector<int>& sequences, const LabelOptions& labels = {},
                           const PositionDraw& draw = {}) {
  const auto set = FeatureSet::Open(rig.options.features);
  const auto file = GgufFile::Open(rig.options.model);
  EXPECT_TRUE(set.ok() && file.ok());
  const auto parts = LoadFrozenParts(**file, set->target());
  const FeatureKeep& keep = set->keep(0);
  const ShardNeeds needs = {
      .keys_values = keep.kv, .final_hidden = keep.final_hidden, .layers = keep.hidden_layers};
  const FrozenHeads frozen = FrozenOf(*parts, labels.vocab);
  return PlaceBatch(MakeBatch(*set, sequences, needs, labels), frozen, set->target(), draw);
}

// Rows at which two results differ.
inline std::vector<int64_t> DifferentRows(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-6) {
  const at::Tensor difference = (a - b).abs().amax(1);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < difference.size(0); ++i) {
    if (difference[i].item<double>() > tolerance) rows.push_back(i);
  }
  return rows;
}

inline std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> rows;
  for (int64_t i = begin; i < end; ++i) rows.push_back(i);
  return rows;
}

// f(step, row) for every row with a label that is so many steps behind the beginning of a chain.
template <typename F>
void ForEachDraftedRow(const PlacedBatch& batch, int n_steps, const F& f) {
  for (int step = 0; step < n_steps; ++step) {
    const at::Tensor rows = Ahead(batch.ends, step).rows;
    for (int64_t i = 0; i < rows.numel(); ++i) {
      const int64_t row = rows[i].item<int64_t>();
      if (batch.labels[row].item<int64_t>() >= 0) f(step, row);
    }
  }
}

// Of what a draft says of a row behind its head, against what the target's head says of its state.
inline double CrossEntropy(const at::Tensor& head, const at::Tensor& drafted, const at::Tensor& target_head,
                           const at::Tensor& state) {
  const at::Tensor share = at::softmax(at::mv(target_head, state), 0);
  return -(share * at::log_softmax(at::mv(head, drafted), 0)).sum().item<double>();
}

inline double Relative(const at::Tensor& got, const at::Tensor& expected) {
  return ((got - expected).norm() / expected.norm()).item<double>();
}

}  // namespace longspec::train::testing
