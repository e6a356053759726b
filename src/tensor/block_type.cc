// SPDX-License-Identifier: Apache-2.0
#include "tensor/block_type.h"

#include <algorithm>
#include <cmath>

#include "tensor/half.h"

namespace longspec {

int RoundToStep(float x, float step, int low, int high) {
  const float quotient = std::nearbyint(x / step);
  if (step == 0 || std::isnan(quotient)) return std::clamp(0, low, high);
  return static_cast<int>(std::clamp(quotient, static_cast<float>(low), static_cast<float>(high)));
}

float StoreHalf(float value, uint16_t* stored) {
  *stored = FloatToHalf(value);
  return HalfToFloat(*stored);
}

float Extreme(const float* src, int n) {
  return *std::max_element(src, src + n, [](float a, float b) { return std::abs(a) < std::abs(b); });
}

int NearestIq4(float x, float d) {
  const int wanted = RoundToStep(x, d, kIq4Values[0], kIq4Values[15]);
  const auto distance = [wanted](int value) { return std::abs(value - wanted); };
  return static_cast<int>(std::ranges::min_element(kIq4Values, {}, distance) - kIq4Values);
}

}  // namespace longspec
