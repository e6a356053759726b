// SPDX-License-Identifier: Apache-2.0
//
// Ends a text at the first line that is less indented than wished; its own first line, which goes on with
// what stands before it, may be as it is. Text goes in piece by piece, and how it was cut never changes the
// result. Not thread-safe.
#pragma once

#include <string_view>

namespace longspec {

class IndentLimit {
 public:
  explicit IndentLimit(int n_indent) : n_indent_(n_indent) {}  // characters; 0 and less: any will do

  // What of the piece is text. REQUIRES: !reached().
  std::string_view Push(std::string_view piece);
  // A line was indented less. Its white space is the end of the text.
  bool reached() const { return reached_; }

 private:
  const int n_indent_;
  int indent_ = 0;          // of the line so far
  bool in_indent_ = false;  // nothing but white space has come of the line
  bool reached_ = false;
};

}  // namespace longspec
