// SPDX-License-Identifier: Apache-2.0
//
// Stop strings over streamed text. Text goes in piece by piece; what comes out can no longer become part of a
// stop string. How the text was cut into pieces never changes the result: the occurrence that is complete
// first ends the text, and of those that end together the one that began first. Matches begin at UTF-8
// characters. Not thread-safe.
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

  // A stop string occurred; it and what followed it are dropped.
  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }  // this one

  // The text ends here: what was still held back. Empty once stopped.
  std::string Finish();

 private:
  // First byte of the longest suffix of pending_ that may begin a stop string.
  size_t HoldBegin() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
  std::string matched_;
};

}  // namespace longspec
