// SPDX-License-Identifier: Apache-2.0
//
// A drafter whose opinion on any continuation of the text costs next to nothing, so that others can have it
// mixed into their own (draft/mixture.h). Chances are those of the text alone: how the target will choose is
// for the asker to add (draft/foresight.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/foresight.h"

namespace longspec {

class Adviser {
 public:
  virtual ~Adviser() = default;
  // Tokens of a chance of at least `least` after the committed text and `path`, in no order; replaces
  // `guesses`.
  virtual void Advise(std::span<const int32_t> path, double least, std::vector<Guess>& guesses) = 0;
};

}  // namespace longspec
