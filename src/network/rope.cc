// SPDX-License-Identifier: Apache-2.0
#include "network/rope.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/elementary.h"

namespace longspec {
namespace {

// YaRN (Peng et al. 2023, section 3.2): the index of the rotation that turns `rotations` times over the
// original context.
double CorrectionIndex(const RopeConfig& c, double rotations) {
  return c.n_rot * Log(c.orig_ctx / (rotations * 2.0 * std::numbers::pi)) / (2.0 * Log(c.freq_base));
}

// Files and options have floats: the fewest digits that make this one again.
std::string Shortest(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), static_cast<float>(value)).ptr;
  return {text, end};
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
  std::string more;
  const auto add = [&more](const std::string& text) { more += (more.empty() ? "" : ", ") + text; };
  std::string text = freq_factors.empty() ? "none" : "frequency factors of the model";
  if (scaling == RopeOptions::Scaling::kLinear) text = "linear x" + Shortest(scale);
  if (scaling == RopeOptions::Scaling::kYarn) {
    text = "yarn x" + Shortest(scale);
    add("original " + std::to_string(orig_ctx));
    if (beta_fast != 32.0 || beta_slow != 1.0)
      add("beta " + Shortest(beta_fast) + " to " + Shortest(beta_slow));
    if (ext_factor != 1.0) add("extrapolation " + Shortest(ext_factor));
  }
  if (const double magnitude = attn_factor * YarnMagnitude(); attn_factor != 1.0 || log_multiplier != 0.0) {
    add("magnitude " + Shortest(magnitude));
  }
  return more.empty() ? text : text + " (" + more + ")";
}

double RopeConfig::YarnMagnitude() const {
  if (scaling != RopeOptions::Scaling::kYarn || ext_factor == 0.0 || scale <= 1.0) return 1.0;
  const double stretch = 0.1 * Log(scale);
  return (1.0 + stretch) / (1.0 + log_multiplier * stretch);
}

RopeTable::RopeTable(const RopeConfig& c) {
  magnitude_ = c.attn_factor * c.YarnMagnitude();
  const bool yarn = c.scaling == RopeOptions::Scaling::kYarn;
  const double interpolation = c.scaling == RopeOptions::Scaling::kNone ? 1.0 : 1.0 / c.scale;
  double low = 0, high = 0;
  if (yarn) {
    low = std::max(0.0, std::floor(CorrectionIndex(c, c.beta_fast)));
    high = std::min(c.n_rot - 1.0, std::ceil(CorrectionIndex(c, c.beta_slow)));
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
