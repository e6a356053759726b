// SPDX-License-Identifier: Apache-2.0
//
// How likely each token is to come next, going by the text so far: prediction by partial matching (Cleary &
// Witten 1984), interpolated. The last 1, 2, ... kMaxOrder tokens are contexts; what followed a context's n
// occurrences counts against kDoubt occurrences' worth of what the next shorter one said:
//
//   p_k(t) = (count(context_k t) + kDoubt * p_(k-1)(t)) / (n + kDoubt)
//
// so that a single occurrence of a long context, all of whose suffixes agree, is believed about as often as
// it is right. p_0 is what a prior says, counts of other texts (formats/ngram_prior.h) blended in the same
// way by the last tokens, or 0 without one. The sum falls short of one by what neither says anything about.
//
// Words come back: at equal contexts, a token of the last 400 is twice and one of the last 100 four times as
// likely as others. Chances are weighted by that, their sum unchanged. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "draft/foresight.h"
#include "draft_text/suffix_automaton.h"
#include "formats/ngram_prior.h"

namespace longspec {

class PpmModel {
 public:
  static constexpr int kMaxOrder = 16;
  static constexpr double kDoubt = 4;
  // What followed the last token alone says less than other texts do, if there is a prior.
  static constexpr double kDoubtOfOneBesidePrior = 16;
  // Tokens ago; fitted, as the weights are, to recorded answers.
  static constexpr int64_t kRecent = 100, kNotLongAgo = 400;
  // Continuations looked at, the most recent ones: more find no more tokens of real answers, and
  // make a token of a long text cost more than twice what one of a short text does.
  static constexpr int kMostSeen = 20;

  struct Contexts {
    // Of the text, longest first, the empty one last; of those with the same occurrences only the longest.
    std::vector<SuffixContext> text;
    NgramPrior::Contexts prior;
  };

  // `prior` may be null.
  explicit PpmModel(std::shared_ptr<const NgramPrior> prior = nullptr)
      : text_(kMaxOrder, kMostSeen),
        prior_(std::move(prior)),
        doubt_of_one_(prior_ != nullptr ? kDoubtOfOneBesidePrior : kDoubt) {
    Clear();
  }

  void Append(int32_t token);
  void Clear();
  int64_t size() const { return text_.size(); }
  size_t bytes() const { return text_.bytes() + last_.capacity() * sizeof(int64_t); }
  uint64_t steps() const { return text_.steps(); }  // of SuffixAutomaton

  // At the end of the text.
  void Current(Contexts& contexts) const;
  // One token further.
  void Extend(const Contexts& contexts, int32_t token, Contexts& extended) const;

  // Tokens of a chance of at least `least`, give or take a tenth of it, in no order; replaces `out`.
  // `at_end`: the contexts are those of Current, whose last occurrence nothing follows yet.
  // Returns what is left to tokens that nothing is known of, rare ones included.
  double Predict(const Contexts& contexts, bool at_end, double least, std::vector<Guess>& out) const;

 private:
  static constexpr int64_t kNever = -1;
  double Recency(int32_t token) const;
  void PreferRecent(std::vector<Guess>& guesses) const;

  SuffixAutomaton text_;
  std::vector<int64_t> last_;  // by token: how long the text was after it came last
  std::shared_ptr<const NgramPrior> prior_;
  double doubt_of_one_;
  NgramPrior::Contexts prior_at_end_;
  mutable std::vector<Continuation> continuations_;
};

}  // namespace longspec
