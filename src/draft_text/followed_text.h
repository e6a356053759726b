// SPDX-License-Identifier: Apache-2.0
//
// An index of the committed text that grows with it. What is committed usually extends what is known; where
// it does not, the index starts again. A text with a hole is read in the order of draft_text/reading_order.h.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "draft_text/reading_order.h"

namespace longspec {

// Index: Append(int32_t), Clear() and bytes().
template <typename Index>
class FollowedText {
 public:
  explicit FollowedText(Index index, const HoleTokens& marks = {})
      : index_(std::move(index)), order_(marks) {}

  // Makes `text` the text.
  void Assign(std::span<const int32_t> text) {
    const std::span<const int32_t> committed = order_.Of(text);
    const bool extends =
        committed.size() >= tokens_.size() && std::equal(tokens_.begin(), tokens_.end(), committed.begin());
    if (!extends) {
      tokens_.clear();
      index_.Clear();
    }
    Append(committed.subspan(tokens_.size()));
  }

  // `committed` is the text, and its last n_new tokens are new.
  void Accept(std::span<const int32_t> committed, int n_new) {
    const auto added = static_cast<size_t>(n_new);
    if (tokens_.size() + added == committed.size()) {
      Append(committed.last(added));
    } else {
      Assign(committed);
    }
  }

  const Index& index() const { return index_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  size_t bytes() const { return index_.bytes() + tokens_.capacity() * sizeof(int32_t); }

 private:
  void Append(std::span<const int32_t> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    for (const int32_t token : tokens) index_.Append(token);
  }

  Index index_;
  ReadingOrder order_;
  std::vector<int32_t> tokens_;
};

}  // namespace longspec
