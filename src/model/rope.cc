// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "base/elementary.h"

namespace longspec {
namespace {

// YaRN (Peng et al. 2023, section 3.2): the index of the rotation that turns `rotations` times over the
// original context.
double CorrectionIndex(const RopeConfig& c, double rotations) {
  return c.n_rot * Log(c.orig_ctx / (rotations * 2.0 * std::numbers::pi)) / (2.0 * Log(c.freq_base));
}

}  // namespace

std::string RopeConfig::ScalingName() const {
  switch (scaling) {
    case RopeOptions::Scaling::kLinear:
      return "linear";
    case RopeOptions::Scaling::kYarn:
      return "yarn";
    default:
      return freq_factors.empty() ? "none" : "llama3";
  }
}

std::string RopeConfig::Describe() const {
  char text[80];
  switch (scaling) {
    case RopeOptions::Scaling::kLinear:
      std::snprintf(text, sizeof(text), "linear x%g", scale);
      return text;
    case RopeOptions::Scaling::kYarn:
      std::snprintf(text, sizeof(text), "yarn x%g (original %d)", scale, orig_ctx);
      return text;
    default:
      return freq_factors.empty() ? "none" : "frequency factors of the model";
  }
}

RopeTable::RopeTable(const RopeConfig& c) {
  const bool yarn = c.scaling == RopeOptions::Scaling::kYarn;
  const double interpolation = c.scaling == RopeOptions::Scaling::kNone ? 1.0 : 1.0 / c.scale;
  double low = 0, high = 0;
  if (yarn) {
    low = std::max(0.0, std::floor(CorrectionIndex(c, c.beta_fast)));
    high = std::min(c.n_rot - 1.0, std::ceil(CorrectionIndex(c, c.beta_slow)));
    magnitude_ = c.attn_factor;
    if (c.ext_factor != 0.0) magnitude_ *= 1.0 + 0.1 * Log(c.scale);
  }
  for (int i = 0; i < c.n_rot / 2; ++i) {
    double frequency = Power(c.freq_base, -2.0 * i / c.n_rot);
    if (!c.freq_factors.empty()) frequency /= c.freq_factors[static_cast<size_t>(i)];
    double mixed = frequency * interpolation;
    if (yarn) {
      const double ramp = 1.0 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
      const double share = ramp * c.ext_factor;  // of the unscaled frequency: fast rotations keep it
      mixed = mixed * (1.0 - share) + frequency * share;
    }
    frequency_.push_back(mixed);
  }
}

void RopeTable::Row(int position, float* cos_sin) const {
  for (size_t i = 0; i < frequency_.size(); ++i) {
    const auto [cos, sin] = CosSinOf(position * frequency_[i]);
    cos_sin[2 * i] = static_cast<float>(cos * magnitude_);
    cos_sin[2 * i + 1] = static_cast<float>(sin * magnitude_);
  }
}

}  // namespace longspec
