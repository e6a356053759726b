// SPDX-License-Identifier: Apache-2.0
//
// Settings of the optimiser, with the defaults of LongSpec. Free of LibTorch.
#pragma once

namespace longspec::train {

struct OptimiserOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-6;
  double weight_decay = 0.1;  // of every tensor, biases and norms included
  double max_norm = 1.0;      // of all gradients together; 0: no clipping
  bool muon = false;          // Muon for matrices of the block, AdamW for all else
  bool muon_in_bf16 = false;  // its products, as Muon's authors have them
};

}  // namespace longspec::train
