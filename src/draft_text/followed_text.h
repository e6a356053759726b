// SPDX-License-Identifier: Apache-2.0
//
// The committed text as drafters read it that count what follows what: in which order, and followed by an
// index that grows with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "draft/drafter.h"

namespace longspec {

// A prompt with a hole ends with what is behind the hole, and the answer goes on with what is before it:
//
//   [PREFIX] for (int row = 0; [SUFFIX] ++row) { [MIDDLE] row < n;
//
// Who counts what follows what reads such a text in another order, so that the answer follows what it goes on
// with, and what is behind the hole is one more text before it:
//
//   [SUFFIX] ++row) { [MIDDLE] [PREFIX] for (int row = 0; row < n;
//
// Its tokens in that order, and just as many. Not thread-safe.
class ReadingOrder {
 public:
  explicit ReadingOrder(const HoleTokens& marks = {}) : marks_(marks) {}

  // A view of `text`, or of a copy that is valid until the next call.
  std::span<const int32_t> Of(std::span<const int32_t> text) {
    if (marks_.middle < 0 || marks_.prefix < 0 || marks_.suffix < 0) return text;
    const auto middle = LastOf(text, marks_.middle);
    if (middle == text.size()) return text;
    const auto before_middle = text.first(middle);
    const auto prefix = LastOf(before_middle, marks_.prefix), suffix = LastOf(before_middle, marks_.suffix);
    if (prefix == middle || suffix == middle) return text;
    ordered_.assign(text.begin(), text.end());
    const auto at = [this](size_t i) { return ordered_.begin() + static_cast<std::ptrdiff_t>(i); };
    if (prefix < suffix) {
      std::rotate(at(prefix), at(suffix), at(middle + 1));
    } else {  // the suffix is first: only the mark of the middle stands between
      std::rotate(at(suffix), at(middle), at(middle + 1));
    }
    return ordered_;
  }

 private:
  // Where a token comes last; the text's size: nowhere.
  static size_t LastOf(std::span<const int32_t> text, int32_t token) {
    const auto found = std::find(text.rbegin(), text.rend(), token);
    return found == text.rend() ? text.size() : static_cast<size_t>(text.rend() - found) - 1;
  }

  HoleTokens marks_;
  std::vector<int32_t> ordered_;
};

// An index of the text. What is committed usually extends what is known; where it does not, the index starts
// again. Index: Append(int32_t), Clear() and bytes(). Not thread-safe.
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
