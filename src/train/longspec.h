// SPDX-License-Identifier: Apache-2.0
//
// The LongSpec draft (Yang et al. 2025, 3.1): one pre-norm block of windowed self-attention, cross-attention
// on the target's last-layer keys and values, and an MLP, without a final norm. Tensor names and shapes are
// those of the published checkpoints. With `own_keys` cross-attention makes its keys and values from the
// target's final hidden state with cross_attn.k_proj and .v_proj, which are without use otherwise.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "train/trainee.h"

namespace longspec::train {

class LongspecTrainee : public Trainee {
 public:
  // Linear weights N(0, 0.02), biases 0, norms 1, from the seed alone. 20 tensors in the order of their
  // files.
  explicit LongspecTrainee(TraineeSetup setup);

  // The residual stream that goes into the LM head, (n, n_embd). The query of token t sees target keys
  // 0 .. t - lag; none before token `lag`.
  at::Tensor Forward(const PlacedBatch& batch, int lag) const;

  PassLoss Loss(const PlacedBatch& batch, const PassDraw& draw) const override;
  std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const override;
  std::string Describe() const override;
  // Self-attention, MLP and their norms of the first layer, which reads embeddings as the draft does; query
  // and output of cross-attention and its norm of the last layer, whose keys and values it reads. Outputs are
  // made small.
  Status InitFromTarget() override;
  void AddConfig(nlohmann::json* config) const override;

 private:
  at::Tensor CrossAttention(const at::Tensor& x, const Rotation& rotation, const PlacedBatch& batch,
                            int lag) const;
  double ForwardMacs(const Ends& ends) const;
};

}  // namespace longspec::train
