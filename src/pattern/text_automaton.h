// SPDX-License-Identifier: Apache-2.0
//
// Automata over the characters of a text. Values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longspec/status.h"
#include "pattern/code_points.h"
#include "pattern/regex.h"

namespace longspec {

struct TextAutomaton {
  struct Edge {
    uint32_t first, last;  // characters
    int32_t target;
  };
  // By state; 0 is the first. Every state can be reached, and can reach one that accepts.
  std::vector<std::vector<Edge>> edges;
  std::vector<bool> accepts;
};

inline constexpr size_t kMostTextStates = 2000;

// What may be spent on patterns, all those of a schema together: steps of some ten nanoseconds. Patterns come
// from strangers, and a short one may become large.
class PatternWork {
 public:
  explicit PatternWork(size_t steps = 10'000'000) : left_(steps) {}
  // False when that is more than there is left.
  bool Spend(size_t steps) {
    if (steps > left_) return false;
    left_ -= steps;
    return true;
  }

 private:
  size_t left_;
};

// The texts that every one of `wholes` describes (without anchors: WholeText), but none of `others`, which
// are in UTF-8. As small as it can be, and never in two states at once, unless that takes too many states.
// kInvalidArgument: there is no such text. kUnsupported: it is too large.
Result<TextAutomaton> IntersectionOf(const std::vector<Regex>& wholes, const std::vector<std::string>& others,
                                     PatternWork& work);

}  // namespace longspec
