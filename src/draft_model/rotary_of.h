// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kv/rotary.h"
#include "model/rope.h"
#include "model/shared_parts.h"

namespace longspec {

// How keys of a model that rotates like this are turned, with the target's kernels.
inline Rotary RotaryOf(const RopeConfig& config, const SharedParts& target) {
  const auto rope = std::make_shared<const RopeTable>(config);
  return {.kernels = target.kernels,
          .pairing = config.pairing,
          .n_rot = rope->n_rot(),
          .magnitude = rope->magnitude(),
          .row = [rope](int position, float* cos_sin) { rope->Row(position, cos_sin); }};
}

}  // namespace longspec
