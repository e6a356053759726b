// SPDX-License-Identifier: Apache-2.0
//
// Rotary position angles: what a model file and the user's options make of them, and the cosines and sines of
// one position. Angles are computed in double precision, so a row's values do not depend on which rows are
// beside it, and with functions of our own (base/elementary.h), so that they are the same on every machine.
#pragma once

#include <string>
#include <vector>

#include "kernels/ops.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

struct RopeConfig {
  RopeOptions::Scaling scaling = RopeOptions::Scaling::kNone;  // never kFromModel
  kernels::RopePairing pairing = kernels::RopePairing::kAdjacent;
  int n_rot = 0;  // rotated values of a head, even
  double freq_base = 10000.0;
  double scale = 1.0;  // context extension factor, >= 1 as a rule
  int orig_ctx = 0;    // YaRN: positions the model was trained for before scaling
  double ext_factor = 1.0, attn_factor = 1.0, beta_fast = 32.0, beta_slow = 1.0;
  std::vector<float> freq_factors;  // (n_rot / 2) divisors of the frequencies (Llama 3), or empty

  // As draft models and feature files name it: "none", "linear", "yarn", "llama3".
  std::string ScalingName() const;
  std::string Describe() const;  // "none", "linear x4", "yarn x4 (original 2048)"
};

// Fills cos_sin (n_rot / 2, 2) for one position.
class RopeTable {
 public:
  explicit RopeTable(const RopeConfig& config);
  void Row(int position, float* cos_sin) const;
  int n_rot() const { return static_cast<int>(frequency_.size()) * 2; }
  // What makes the table: for programs that rotate by other means.
  const std::vector<double>& frequencies() const { return frequency_; }
  double magnitude() const { return magnitude_; }

 private:
  std::vector<double> frequency_;  // radians per position, scaling applied
  double magnitude_ = 1.0;         // YaRN's factor on cosine and sine
};

}  // namespace longspec
