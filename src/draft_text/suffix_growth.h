// SPDX-License-Identifier: Apache-2.0
//
// Drafts of SuffixDecoding (arXiv 2411.04975): an index of text, whatever that is kept in, says how often
// which token followed a context, and a draft grows by what it says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/foresight.h"
#include "tree/token_tree.h"

namespace longspec {

// A string that occurs in the indexed text. The numbers mean something to its index only, and nothing after
// the index has changed.
struct SuffixContext {
  int64_t first = 0;
  int64_t last = 0;
  int32_t length = 0;
};

struct Continuation {
  int32_t token = 0;
  double share = 0;       // of the context's occurrences, those that this token follows
  SuffixContext context;  // the context with the token appended
};

// An index of text.
class SuffixIndex {
 public:
  virtual ~SuffixIndex() = default;

  // Up to `most` of the most frequent continuations, most frequent first; replaces `out`.
  virtual void Continuations(const SuffixContext& context, int most,
                             std::vector<Continuation>& out) const = 0;
};

struct SuffixLimits {
  int max_nodes = 0;
  int max_depth = 0;
  int width = 1;        // most children of a node; 1: a chain of the most frequent tokens
  double min_prob = 0;  // nodes of a lower score are left out
  Foresight foresight = {};
  std::span<const int32_t> committed = {};  // the tokens before the draft
};

struct SuffixDraft {
  struct Node {
    int32_t token;
    int32_t parent;  // index into nodes, -1 for the root's children
    double score;
  };
  std::vector<Node> nodes;  // parents first
  double score = 0;         // the sum of the nodes': the expected number of accepted tokens
};

// Grows a draft from a context by what followed it in an index: best first, a node's score being the product
// of the shares on its path, the estimated chance that it is reached. Not thread-safe.
class SuffixGrower {
 public:
  SuffixDraft Grow(const SuffixIndex& index, const SuffixContext& context, const SuffixLimits& limits);

 private:
  struct Candidate {
    double score;
    int32_t order;  // of discovery: earlier ones first among equals
    int32_t parent, token, depth;
    SuffixContext context;
  };
  void Discover(const SuffixIndex& index, const SuffixContext& context, const SuffixLimits& limits,
                const Candidate& parent, const SuffixDraft& draft);

  std::vector<Candidate> heap_;
  std::vector<Continuation> continuations_;
  std::vector<Guess> guesses_;
  std::vector<int32_t> path_;
  int32_t n_discovered_ = 0;
};

// Adds the draft's nodes below the root of `tree`.
void AddToTree(const SuffixDraft& draft, TokenTree& tree);

}  // namespace longspec
