// SPDX-License-Identifier: Apache-2.0
//
// How likely each token is to come next, going by the text so far: prediction by partial matching (Cleary &
// Witten 1984), interpolated. The last 1, 2, ... kMaxOrder tokens are contexts; what followed a context's n
// occurrences counts against kDoubt occurrences' worth of what the next shorter one said:
//
//   p_k(t) = (count(context_k t) + kDoubt * p_(k-1)(t)) / (n + kDoubt),    p_0 = 0
//
// so that a single occurrence of a long context, all of whose suffixes agree, is believed about as often as
// it is right, and the sum falls short of one by what the text says nothing about. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/suffix_automaton.h"

namespace longspec {

class PpmModel {
 public:
  static constexpr int kMaxOrder = 16;
  static constexpr double kDoubt = 4;
  // Continuations looked at, the most recent ones: twice as many find no more tokens of real answers, and
  // make a token of a long text cost more than twice what one of a short text does.
  static constexpr int kMostSeen = 32;

  struct Prediction {
    int32_t token;
    double chance;
  };
  // The contexts at some place, longest first, the empty one last; of contexts with the same occurrences only
  // the longest.
  using Contexts = std::vector<SuffixContext>;

  PpmModel() : text_(kMaxOrder, kMostSeen) {}

  void Append(int32_t token) { text_.Append(token); }
  void Clear() { text_.Clear(); }
  int64_t size() const { return text_.size(); }
  size_t bytes() const { return text_.bytes(); }
  uint64_t steps() const { return text_.steps(); }  // of SuffixAutomaton

  // At the end of the text.
  void Current(Contexts& contexts) const;
  // One token further.
  void Extend(const Contexts& contexts, int32_t token, Contexts& extended) const;

  // Tokens of a chance of at least `least`, give or take a tenth of it, in no order; replaces `out`.
  // `at_end`: the contexts are those of Current, whose last occurrence nothing follows yet.
  void Predict(const Contexts& contexts, bool at_end, double least, std::vector<Prediction>& out) const;

 private:
  SuffixAutomaton text_;
  mutable std::vector<Continuation> continuations_;
};

}  // namespace longspec
