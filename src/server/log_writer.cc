// SPDX-License-Identifier: Apache-2.0
#include "server/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace longspec::server {
namespace {

constexpr int kPollMs = 50;

}  // namespace

LogWriter::LogWriter(int fd, LogWriterOptions options)
    : fd_(fd), options_(std::move(options)), thread_([this] { Run(); }) {}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void LogWriter::Write(std::string line) {
  line += '\n';
  {
    const std::lock_guard lock(mutex_);
    if (n_bytes_ + line.size() > options_.most_bytes) {
      ++n_dropped_;
      return;
    }
    n_bytes_ += line.size();
    waiting_.push_back(std::move(line));
  }
  wake_.notify_all();
}

void LogWriter::Run() {
  for (std::string line; Next(&line);) {
    if (!Send(line)) return;
  }
}

// Waits for a line. False: there are no more.
bool LogWriter::Next(std::string* line) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !waiting_.empty() || n_dropped_ > 0; });
  if (!waiting_.empty()) {
    *line = std::move(waiting_.front());
    waiting_.pop_front();
    n_bytes_ -= line->size();
    return true;
  }
  const int64_t n_dropped = std::exchange(n_dropped_, 0);
  if (n_dropped == 0) return false;
  *line = options_.dropped_line ? options_.dropped_line(n_dropped) + "\n" : std::string();
  return true;
}

// False: nobody takes it any more, and nobody waits for that.
bool LogWriter::Send(const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    if (!WaitForRoom()) return false;
    // A pipe that has room has it for so many bytes at least: the write does not wait.
    const ssize_t n = write(fd_, line.data() + sent, std::min<size_t>(line.size() - sent, PIPE_BUF));
    if (n < 0 && errno != EINTR && errno != EAGAIN)
      return true;  // this line cannot be written; the next may be
    sent += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

bool LogWriter::WaitForRoom() {
  for (int waited = 0;;) {
    pollfd room{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&room, 1, kPollMs) != 0) return true;
    const std::lock_guard lock(mutex_);
    if (stopping_ && (waited += kPollMs) > options_.drain_ms) return false;
  }
}

}  // namespace longspec::server
