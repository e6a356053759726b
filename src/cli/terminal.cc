// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/print.h"
#include "base/to_int.h"
#include "cli/output.h"

namespace longspec::cli {
namespace {

constexpr double kTerminalIntervalMs = 50;
constexpr double kLogIntervalMs = 2000;        // at the least, between two lines of a log
constexpr double kLogPatienceMs = 15000;       // a line even if no quarter was reached
constexpr int kMostSecondsShown = 999 * 3600;  // of time left

std::string Line(const std::string& label, double share, std::string_view detail) {
  std::string line = label + " " + std::to_string(ToInt(share * 100, 0, 100)) + " %";
  if (!detail.empty()) line.append(" (").append(detail).append(")");
  return line;
}

}  // namespace

Progress::Sink Progress::StandardError(bool enabled) {
  return {.enabled = enabled,
          .terminal = IsTerminal(STDERR_FILENO),
          .write = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); },
          .now_ms = NowMs};
}

Progress::Progress(std::string label, Sink sink)
    : label_(std::move(label)), sink_(std::move(sink)), begin_ms_(sink_.now_ms()), last_ms_(begin_ms_) {}

void Progress::Update(double share, std::string_view detail) {
  if (!sink_.enabled) return;
  const double now = sink_.now_ms();
  if (sink_.terminal) {
    UpdateTerminal(share, detail, now);
  } else {
    UpdateLog(share, detail, now);
  }
}

void Progress::UpdateTerminal(double share, std::string_view detail, double now) {
  if (now - last_ms_ < kTerminalIntervalMs) return;
  sink_.write("\r\033[K" + Line(label_, share, detail));
  last_ms_ = now;
  shown_ = true;
}

void Progress::UpdateLog(double share, std::string_view detail, double now) {
  const int quarter = ToInt(share * 4, 0, 4);
  const double waited = now - last_ms_;
  if (waited < kLogIntervalMs || (quarter <= last_quarter_ && waited < kLogPatienceMs)) return;
  sink_.write(Line(label_, share, detail) + "\n");
  last_ms_ = now;
  last_quarter_ = quarter;
}

void Progress::Finish() {
  if (shown_) sink_.write("\r\033[K");
  shown_ = false;
}

std::string FormatTimeLeft(double ms) {
  if (ms < 0) return "";
  const int seconds = ToInt(ms / 1000.0, 0, kMostSecondsShown);
  return Print(", %d:%02d:%02d left", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string FormatTimeLeft(double share, double first_share, double elapsed_ms) {
  if (share <= first_share) return "";
  return FormatTimeLeft(std::max(0.0, elapsed_ms * (1.0 - share) / (share - first_share)));
}

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
