// SPDX-License-Identifier: Apache-2.0
//
// Beagle (arXiv 2505.24544): one block of cross-attention from a token's embedding to the states of the
// tokens before it, the target's or, on the way down a chain, the draft's own. In its early stage windows of
// tokens are predicted from the same states ("inverse block attention"); in its late stage chains are
// simulated with as many further keys as there are rows.
#pragma once

#include <cstdint>
#include <vector>

#include "train/layers.h"
#include "train/slots.h"
#include "train/trainee.h"

namespace longspec::train {

// How many states each query sees, of 1 .. length tokens, when windows of that many tokens begin after
// `offset` tokens: the first of a window sees all states before it, and the others no more. Before the first
// window every query sees all states before it.
std::vector<int64_t> BlockVisibility(int64_t length, int window, int offset);

class BeagleTrainee : public Trainee {
 public:
  explicit BeagleTrainee(TraineeSetup setup);

  PassLoss Loss(const PlacedBatch& batch, const PassDraw& draw) const override;
  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override;
  std::string Describe() const override;
  Status InitFromTarget() override;
  void AddConfig(nlohmann::json* config) const override;

  // Drafts of the early stage for all rows, (n, n_embd), when windows begin at `offset`.
  at::Tensor Early(const PlacedBatch& batch, const at::Tensor& states, int offset) const;

  // Drafts of the late stage: at [i] those i steps into their window.
  struct LateStep {
    at::Tensor states;  // (r, n_embd)
    at::Tensor rows;    // (r) int64
  };
  // Each step sees the target's states before its window and the drafts of its window before it, or `own`
  // (n, n_embd) in their place.
  std::vector<LateStep> Late(const PlacedBatch& batch, const at::Tensor& states, int offset,
                             const at::Tensor& own = {}) const;

 private:
  struct Memory {
    at::Tensor keys, values;  // (n, n_head_kv, head_dim)
  };
  Memory Project(const at::Tensor& states, const at::Tensor& positions) const;
  // Of the tokens at `rows` (m).
  at::Tensor Block(const PlacedBatch& batch, const at::Tensor& rows, const Memory& memory, const Ends& ends,
                   std::span<const int64_t> seen, std::span<const OwnStep> own) const;
  PassLoss EarlyLoss(const PlacedBatch& batch, const PassDraw& draw) const;
  PassLoss LateLoss(const PlacedBatch& batch, const PassDraw& draw) const;
};

}  // namespace longspec::train
