// SPDX-License-Identifier: Apache-2.0
//
// Checked output: standard output is for text and JSON only, and a write that fails is never silent. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "longspec/status.h"

namespace longspec::cli {

// Gives closed standard streams a harmless file, so that no file opened later becomes "standard output".
// Writing to a standard output that was closed still fails.
void ReserveStandardStreams();

// A file descriptor that text is written to at once.
class Output {
 public:
  static Output Standard();                             // standard output; not closed
  static Result<Output> Open(const std::string& path);  // created if need be; contents are kept until Replace

  // Written at the end, whoever else does; created for its owner's eyes only.
  static Result<Output> Append(const std::string& path);
  // The same, and refused while another process has the file open in this way.
  static Result<Output> AppendAlone(const std::string& path);

  Output(Output&& other) noexcept;
  Output& operator=(Output&& other) noexcept;
  ~Output();

  // Can this be written to at all? Says no before work is spent on text that has nowhere to go.
  Status Check() const;
  Status Write(std::string_view text);
  // Replaces the contents of a file; the same as Write for what has none to replace, such as a pipe.
  Status Replace(std::string_view text);
  // What is behind `size` bytes is cut off; nothing is done to what cannot be cut, such as a pipe.
  Status CutTo(uint64_t size);
  // Waits until the disk has what was written.
  Status Sync();

 private:
  Output(int fd, std::string name, bool owned);
  Status Error(int error) const;
  int fd_;
  std::string name_;
  bool owned_;
};

// Reports a failed write and returns kExitOutput; a reader that went away (a closed pipe) is not worth a
// message.
int FailOutput(const Status& status);

// Writes a whole text to standard output: the exit status.
int WriteOutput(std::string_view text);

bool IsTerminal(int fd);

// After EAGAIN: whoever gave the program a pipe that does not block still wants all of it. `events`: POLLIN
// or POLLOUT.
void WaitUntilReady(int fd, short events);

}  // namespace longspec::cli
