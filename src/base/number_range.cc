// SPDX-License-Identifier: Apache-2.0
#include "base/number_range.h"

#include <cmath>
#include <cstdlib>

#include "base/print.h"

namespace longspec {
namespace {

constexpr double kLongNumber = 1 << 30;  // an end that is there for no other reason than an integer's size

std::string Shortest(double number) { return Print("%.10g", number); }

}  // namespace

NumberRange NumberRange::Positive() {
  NumberRange range(0);
  range.low_excluded_ = true;
  return range;
}

std::string NumberRange::Describe() const {
  if (low_excluded_) return "more than " + Shortest(low_);
  return high_ < kLongNumber ? Shortest(low_) + " to " + Shortest(high_) : Shortest(low_) + " or more";
}

std::string NumberRange::Check(const std::string& text) const {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return "must be a number, not " + text;
  const bool too_small = low_excluded_ ? value <= low_ : value < low_;
  if (!too_small && value <= high_) return "";
  const bool between = high_ < kLongNumber;
  if (!too_small && !between) return "must be at most " + Shortest(high_) + ", not " + text;
  return "must be " + std::string(between ? "from " : "") + Describe() + ", not " + text;
}

}  // namespace longspec
