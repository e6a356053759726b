// SPDX-License-Identifier: Apache-2.0
//
// What SuffixDecoding (arXiv 2411.04975) asks of an index of text: how often which token
// followed a context. Drafts grow over this interface, whatever the text is kept in.
#pragma once

#include <cstdint>
#include <vector>

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

class SuffixIndex {
 public:
  virtual ~SuffixIndex() = default;

  // Up to `most` of the most frequent continuations, most frequent first; replaces `out`.
  virtual void Continuations(const SuffixContext& context, int most,
                             std::vector<Continuation>& out) const = 0;
};

}  // namespace longspec
