// SPDX-License-Identifier: Apache-2.0
//
// Candidate tokens in the one order the sampler knows, descending logit and ascending id on ties, sorted no
// further than asked. NaN counts as minus infinity, so the order is total whatever the logits are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace longspec {

using Candidate = std::pair<float, int32_t>;  // logit, token

// The first token with the largest logit; 0 if there is none above minus infinity.
int32_t ArgMax(std::span<const float> logits);

// The k first candidates of the order, sorted; all if there are fewer. Replaces `out`.
void FirstCandidates(std::span<const float> logits, size_t k, std::vector<Candidate>& out);

// The same, but that for k <= 0 or k >= logits.size() every token comes in order of id.
void TopCandidates(std::span<const float> logits, int k, std::vector<Candidate>& out);

// Reads candidates in the order, sorting blocks of growing size as the reader goes on. Candidates that were
// never read stay in the order they were given.
class CandidateOrder {
 public:
  // The first n_sorted of `candidates` (borrowed) are in order already, and come first.
  CandidateOrder(std::vector<Candidate>& candidates, size_t n_sorted)
      : candidates_(candidates), n_sorted_(n_sorted) {}

  size_t size() const { return candidates_.size(); }
  const Candidate& operator[](size_t i) {
    if (i >= n_sorted_) SortPast(i);
    return candidates_[i];
  }

 private:
  void SortPast(size_t i);

  std::vector<Candidate>& candidates_;
  size_t n_sorted_;
};

}  // namespace longspec
