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
  // YaRN: share of the unscaled frequency that fast rotations keep; turns over orig_ctx from which on a
  // rotation is fast, and below which it is slow.
  double ext_factor = 1.0, beta_fast = 32.0, beta_slow = 1.0;
  double log_multiplier = 0.0;  // YaRN: transformers' mscale_all_dim; YarnMagnitude is divided by its share
  double attn_factor = 1.0;     // on cosine and sine, of any scaling, beside YarnMagnitude
  std::vector<float> freq_factors;  // (n_rot / 2) divisors of the frequencies (Llama 3), or empty

  // As draft models and feature files name it: "none", "linear", "yarn", "llama3".
  std::string ScalingName() const;
  // "none", "linear x4", "yarn x4 (original 2048)", and every other number that is not the usual one: equal
  // texts mean equal scaling.
  std::string Describe() const;
  // What YaRN multiplies cosine and sine by (Peng et al. 2023, section 3.4): 0.1 ln(scale) + 1, divided by
  // 0.1 log_multiplier ln(scale) + 1. 1 if nothing is stretched.
  double YarnMagnitude() const;
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
  double magnitude_ = 1.0;         // factor on cosine and sine
};

}  // namespace longspec
