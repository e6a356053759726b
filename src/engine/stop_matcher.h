// SPDX-License-Identifier: Apache-2.0
//
// Stop strings over streamed text. Text goes in piece by piece; what comes out can no longer become part of a
// stop string. How the text was cut into pieces never changes the result: the occurrence that is complete
// first ends the text, and of those that end together the one that began first. Matches begin at UTF-8
// characters. Control tokens, which stand for no text, are seen by stop strings that name them in whole.
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longspec {

class StopMatcher {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Text that is final now; may be empty. REQUIRES: !stopped().
  std::string Push(std::string_view piece);
  // As if the name of a control token were a piece, but it is not in the text that comes out.
  std::string PushControl(std::string_view name);

  // A stop string occurred; it and what followed it are dropped.
  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }  // this one

  // The text ends here: what was still held back. Empty once stopped.
  std::string Finish();

 private:
  struct Range {
    size_t begin, end;
  };

  // The first occurrence of `stop` in pending_, or npos.
  size_t Find(const std::string& stop) const;
  bool IsInName(size_t at) const;
  // At a character, and not inside a control token's name. REQUIRES: at < pending_.size()
  bool MayBegin(size_t at) const;
  // First byte of the longest suffix of pending_ that may begin a stop string.
  size_t HoldBegin() const;
  // Takes the first n bytes out of pending_, and gives what of them is text.
  std::string TakeText(size_t n);

  std::vector<std::string> stops_;
  std::string pending_;
  std::vector<Range> names_;  // of control tokens in pending_, in order
  bool stopped_ = false;
  std::string matched_;
};

}  // namespace longspec
