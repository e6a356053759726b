// SPDX-License-Identifier: Apache-2.0
//
// What may fill the hole of a text, going by the text around it. Somebody is in the middle of a line, often
// of a name: what followed the same letters elsewhere is a guess that no tokens tell, as a name that is half
// written is made of other tokens than the whole one. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "longspec/infill.h"

namespace longspec::openai {

struct LikelyMiddle {
  std::string text;   // up to the end of the line
  double chance = 0;  // that the middle begins as it does
  bool ends = false;  // it meets what is behind the hole, so that the middle ends there
  bool operator==(const LikelyMiddle&) const = default;
};

// Likeliest first.
std::vector<LikelyMiddle> LikelyMiddles(const InfillText& text);

}  // namespace longspec::openai
