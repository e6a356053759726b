// SPDX-License-Identifier: Apache-2.0
//
// What can be chosen of a draft and of what its kind does in training. Each kind reads what concerns it. Free
// of LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec::train {

// Of products with weights and of attention: bf16 multiplies values of 8 bits of mantissa and adds them up in
// f32.
enum class Precision : uint8_t { kF32, kBf16 };
// On the target's states, as they are fed to a draft in training.
enum class StateNoise : uint8_t { kNone, kUniform, kGaussian };

// The kinds that there are, with commas (trainee_kinds.h).
std::string TraineeKindNames();
// Whether a kind has all of these options, which only some kinds have: "--window", "--heads".
Status CheckTraineeOptions(const std::string& kind, std::span<const std::string> given);

struct TraineeOptions {
  std::string kind = "longspec";
  Precision precision = Precision::kF32;
  int n_ff = 0;  // 0: the target's

  // longspec
  int window = 512;       // a query sees as many tokens before it, and itself
  int most_lag = 4;       // flash noisy training: 1 .. most_lag
  bool own_keys = false;  // keys and values of its own from the final hidden state, not the target's

  // eagle, eagle3, beagle, exit: drafts that read states of their own
  int simulate = -1;     // steps with states of their own in training; -1: as many as the kind's paper has
  int block_window = 5;  // beagle's early stage: tokens that are predicted from the same states
  double regression = 10.0;  // weight of SmoothL1 to the target's state beside the cross-entropy's 1
  StateNoise noise = StateNoise::kUniform;
  double noise_scale = 0.2;

  std::vector<int> layers;  // eagle3: three that it reads; exit: the one; lm: those that it begins with
  std::string sibling;      // lm: GGUF file of the smaller model whose layers these are; empty: the target's
  int n_heads = -1;         // medusa, tokenswift; -1: as many as the kind's paper has
};

}  // namespace longspec::train
