// SPDX-License-Identifier: Apache-2.0
#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace longspec::cli {

bool LineReader::TakeLine(std::string* line) {
  const size_t end = buffer_.find('\n');
  if (end != std::string::npos) {
    *line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
  } else if (end_ && !buffer_.empty()) {
    *line = std::exchange(buffer_, std::string());
  } else {
    return false;
  }
  if (line->ends_with('\r')) line->pop_back();
  return true;
}

bool LineReader::HasInput() const {
  std::array<pollfd, 2> fds = {pollfd{fd_, POLLIN, 0}, pollfd{interrupt_fd_, POLLIN, 0}};
  return end_ || !buffer_.empty() || poll(fds.data(), fds.size(), 0) > 0;
}

LineReader::Outcome LineReader::Read(std::string* line) {
  while (!TakeLine(line)) {
    if (end_) return Outcome::kEnd;
    std::array<pollfd, 2> fds = {pollfd{fd_, POLLIN, 0}, pollfd{interrupt_fd_, POLLIN, 0}};
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) {
      end_ = true;
      continue;
    }
    if ((fds[1].revents & POLLIN) != 0) return Outcome::kInterrupted;
    if (fds[0].revents == 0) continue;
    std::array<char, 4096> bytes{};
    const ssize_t n = read(fd_, bytes.data(), bytes.size());
    if (n > 0) {
      buffer_.append(bytes.data(), static_cast<size_t>(n));
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      end_ = true;
    }
  }
  return Outcome::kLine;
}

}  // namespace longspec::cli
