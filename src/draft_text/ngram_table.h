// SPDX-License-Identifier: Apache-2.0
//
// TokenSwift's token reutilisation (arXiv 2502.18890): the 4-grams of a text,
// counted, and of each first token those that occurred most often. Asked what follows a token, it answers
// with their other three. Constant time per token. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "draft_text/suffix_growth.h"

namespace longspec {

class NgramTable final : public SuffixIndex {
 public:
  static constexpr int kLength = 4;
  // Of each first token so many are continuations.
  static constexpr int kMost = 20;
  // bytes() of a text, for each of its tokens, at most.
  static constexpr size_t kMostBytes = 192;

  struct Entry {
    std::array<int32_t, kLength> tokens;
    int32_t count = 0;
    int32_t last = 0;  // index in the text of its last token, where it occurred last
  };

  void Append(int32_t token);
  void Clear();

  // The 4-grams that begin with this token: the most frequent first, of equal counts the newest; kMost at
  // most.
  std::vector<Entry> Best(int32_t first) const;
  // A context for Continuations; of length 0 if nothing is known of the token.
  SuffixContext After(int32_t token) const;

  // A share is that of all 4-grams with this first token, or, further on, of the best ones that begin like
  // the context. A few occurrences more are thought of that went on otherwise, so that one alone is not
  // believed.
  void Continuations(const SuffixContext& context, int most, std::vector<Continuation>& out) const override;

  size_t bytes() const;

 private:
  struct First {
    int32_t n = 0;              // 4-grams that begin with it, each as often as it occurred
    std::vector<int32_t> best;  // entries, in the order of Best
  };

  struct Hash {
    size_t operator()(const std::array<int32_t, kLength>& tokens) const;
  };

  // Puts an entry that has just occurred where it belongs.
  void Raise(int32_t entry, std::vector<int32_t>* best) const;

  std::array<int32_t, kLength> newest_ = {};  // the last tokens of the text
  int32_t n_tokens_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::array<int32_t, kLength>, int32_t, Hash> entry_of_;
  std::unordered_map<int32_t, First> first_;
};

}  // namespace longspec
