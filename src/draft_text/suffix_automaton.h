// SPDX-License-Identifier: Apache-2.0
//
// A growing text with the frequency of each of its substrings up to a length: a suffix automaton (Blumer et
// al. 1985), whose states are classes of substrings that end at the same places. Appending a token takes
// amortised constant time, whatever has been appended: besides the automaton's own work it counts at most
// max_context + 1 states. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "draft_text/suffix_growth.h"

namespace longspec {

class SuffixAutomaton final : public SuffixIndex {
 public:
  // Contexts of up to max_context tokens are told apart; of a context, the max_continuations most recent
  // continuations are looked at. REQUIRES: both >= 1
  explicit SuffixAutomaton(int max_context, int max_continuations = 64);

  // REQUIRES: token >= 0, fewer than 2^30 tokens in all
  void Append(int32_t token);
  void Clear();

  // The longest suffix of the text, up to max_context, that also occurs earlier; its length is 0 if there is
  // none. And the longest suffix of a context that occurs at more places than it.
  SuffixContext LongestMatch() const;
  SuffixContext Shorter(const SuffixContext& context) const;
  // The context with a token appended, up to max_context of its last tokens; false if it does not occur.
  bool Extend(const SuffixContext& context, int32_t token, SuffixContext* extended) const;
  // Occurrences in the text, the one at its very end included.
  int64_t Count(const SuffixContext& context) const;

  // A context at the very end of the text, which nothing follows, is continued as its longest suffix that
  // something follows is. Of contexts with very many different continuations, the most recent ones are
  // considered.
  void Continuations(const SuffixContext& context, int most, std::vector<Continuation>& out) const override;

  int64_t size() const { return size_; }
  size_t bytes() const;  // memory held
  uint64_t steps() const {
    return steps_;
  }  // elementary steps of all appends and look-ups: their cost,
     // machine apart

 private:
  struct State {
    int32_t length = 0;       // of its longest substring
    int32_t link = -1;        // the state of its longest suffix that is in another one
    int32_t count = 0;        // places it ends at; exact if its shortest substring has up to max_context + 1
    int32_t first_edge = -1;  // most recently used first
  };
  struct Edge {
    int32_t from, token, to;
    int32_t previous, next;  // of the same state
  };

  const State& state(int32_t i) const { return states_[static_cast<size_t>(i)]; }
  State& state(int32_t i) { return states_[static_cast<size_t>(i)]; }
  int32_t AddState(const State& state);
  size_t Slot(int32_t from, int32_t token) const;
  int32_t FindEdge(int32_t from, int32_t token) const;
  void AddEdge(int32_t from, int32_t token, int32_t to);
  void CopyEdges(int32_t from, int32_t to);
  void MoveToFront(int32_t edge);
  int32_t Split(int32_t parent, int32_t child, int32_t token);
  void AppendState(int32_t token);
  void CountSuffixes(int32_t token);
  SuffixContext ContextOf(int32_t state) const;
  int32_t Shorten(int32_t state, int length) const;

  int max_context_, max_continuations_;
  int64_t size_ = 0;
  int32_t last_ = 0;  // the state of the whole text
  int32_t tail_ = 0;  // the state of its last min(size, max_context + 1) tokens
  mutable uint64_t steps_ = 0;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> slots_;  // open addressing: edges by (from, token); at most half used
  std::vector<int32_t> copied_;
};

}  // namespace longspec
