// SPDX-License-Identifier: Apache-2.0
//
// Lines to a file descriptor by a thread of their own: who logs never waits for who reads the log.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace longspec::server {

struct LogWriterOptions {
  size_t most_bytes = size_t{1} << 20;  // that wait; lines beyond them are dropped
  int drain_ms = 1000;                  // the end waits so long for a reader that takes nothing
  // Says how many were dropped, once there is room again.
  std::function<std::string(int64_t n_dropped)> dropped_line = {};
};

class LogWriter {
 public:
  explicit LogWriter(int fd, LogWriterOptions options = {});
  // What waits is written as long as somebody takes it.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // `line` is without its end. Any thread.
  void Write(std::string line);

 private:
  void Run();
  bool Next(std::string* line);
  bool Send(const std::string& line);
  bool WaitForRoom();

  const int fd_;
  const LogWriterOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> waiting_;
  size_t n_bytes_ = 0;  // of them
  int64_t n_dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace longspec::server
