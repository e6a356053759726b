// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

namespace longspec::testing {

// How often a file is opened from now on, by whomever.
class Opens {
 public:
  // Closing is watched, too: events that equal the one before them are not reported.
  explicit Opens(const std::string& path) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(fd_, path.c_str(), IN_OPEN | IN_CLOSE), 0) << path;
  }
  ~Opens() { close(fd_); }
  Opens(const Opens&) = delete;
  Opens& operator=(const Opens&) = delete;

  // Since the last call.
  int Count() const {
    std::array<char, 64 * sizeof(inotify_event)> events;
    int n = 0;
    for (ssize_t size; (size = read(fd_, events.data(), events.size())) > 0;) {
      for (ssize_t at = 0; at < size;) {
        inotify_event event;
        std::memcpy(&event, events.data() + at, sizeof(event));
        n += (event.mask & IN_OPEN) != 0 ? 1 : 0;
        at += static_cast<ssize_t>(sizeof(event) + event.len);
      }
    }
    return n;
  }

 private:
  const int fd_;
};

}  // namespace longspec::testing
