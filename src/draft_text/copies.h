// SPDX-License-Identifier: Apache-2.0
//
// Where in texts that it may be made of an answer is. A place is believed for what it foretold: each token of
// the answer is held against what stands at each place. A text is left where the answer changes it, and found
// again where the answer's end occurs in it, the nearer to where it was left the likelier; or, as a word is
// often replaced by another, one token further on. Deterministic by the texts and the answer. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace longspec {

// A place of a text at which the answer may go on.
struct Copy {
  size_t text = 0, at = 0;  // the token that would come next
  int run = 0;              // tokens before it that are the answer's, or as good as that
  double weight = 1;        // that the answer is here
};

// How sure the next token is where the answer is: the more, the longer it was a copy.
double ChanceOfNext(int run);

class Copies {
 public:
  // A text that the answer may be made of, from any place of it on.
  void AddWhole(std::vector<int32_t> tokens);
  // One that the answer may begin with, or have a part of. The chance may be 0.
  void AddBeginning(std::vector<int32_t> tokens, double chance);

  // Nothing is written yet.
  void Restart();
  // Makes `answer` what is written. What extends what is known costs what is new.
  void Follow(std::span<const int32_t> answer);

  // The places, likeliest first; their weights add up to one at most.
  const std::vector<Copy>& places() const { return places_; }
  // The token there; -1: the text has ended.
  int32_t TokenAt(size_t text, size_t at) const {
    const auto& tokens = texts_[text].tokens;
    return at < tokens.size() ? tokens[at] : -1;
  }
  size_t bytes() const;

 private:
  struct Text {
    std::vector<int32_t> tokens;
    bool whole;
    double chance;       // of beginnings
    size_t left_at = 0;  // where the answer was last
  };

  void Take(int32_t token);
  void FindAgain();
  int Matched(const Text& text, size_t at) const;
  static double Far(const Text& text, size_t at);

  std::vector<Text> texts_;
  std::vector<int32_t> answer_;
  std::vector<Copy> places_;
  int since_left_ = 0;  // tokens of the answer that are no copy
};

}  // namespace longspec
