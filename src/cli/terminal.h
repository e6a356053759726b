// SPDX-License-Identifier: Apache-2.0
//
// What a person at a terminal sees and types, or a pipe in their place. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace longspec::cli {

// How far loading or prefill is, on stderr: one line that updates itself on a terminal, otherwise a few
// lines, and none for what is quick.
class Progress {
 public:
  struct Sink {
    bool enabled = true;
    bool terminal = false;
    std::function<void(std::string_view)> write;  // to stderr
    std::function<double()> now_ms;
  };
  static Sink StandardError(bool enabled);

  Progress(std::string label, Sink sink);
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail` goes after the percentage: "1024/4096 tokens".
  void Update(double share, std::string_view detail = {});
  // Clears the terminal's line. Safe to call twice.
  void Finish();
  // Since the work began.
  double elapsed_ms() const { return sink_.now_ms() - begin_ms_; }

 private:
  void UpdateTerminal(double share, std::string_view detail, double now);
  void UpdateLog(double share, std::string_view detail, double now);

  std::string label_;
  Sink sink_;
  double begin_ms_, last_ms_;
  int last_quarter_ = 0;
  bool shown_ = false;
};

// ", 1:02:03 left"; empty if that is not known, and negative.
std::string FormatTimeLeft(double ms);
// The same after `elapsed_ms` that led from `first_share` to `share`; empty while nothing is known.
// What was done before the first share is not this run's speed.
std::string FormatTimeLeft(double share, double first_share, double elapsed_ms);

// Lines of an input that may be a terminal or a pipe, interruptible by Ctrl-C.
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
