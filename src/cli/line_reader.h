// SPDX-License-Identifier: Apache-2.0
//
// Lines of an input that may be a terminal or a pipe, interruptible by Ctrl-C. Not thread-safe.
#pragma once

#include <string>

namespace longspec::cli {

class LineReader {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted };

  // `interrupt_fd`: becomes readable when waiting should end; -1: never. Neither is closed.
  LineReader(int fd, int interrupt_fd) : fd_(fd), interrupt_fd_(interrupt_fd) {}

  // The next line, without its end ("\n" or "\r\n"). A last line without an end counts.
  Outcome Read(std::string* line);
  // Whether Read would find something, if only that waiting should end.
  bool HasInput() const;

 private:
  bool TakeLine(std::string* line);

  int fd_;
  int interrupt_fd_;
  std::string buffer_;
  bool end_ = false;
};

}  // namespace longspec::cli
