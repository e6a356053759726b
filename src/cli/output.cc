// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "cli/exit_code.h"

namespace longspec::cli {

void ReserveStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free descriptor is this one. Read-only, so that writing to it fails.
    [[maybe_unused]] const int opened = open("/dev/null", O_RDONLY);
  }
}

Output::Output(int fd, std::string name, bool owned) : fd_(fd), name_(std::move(name)), owned_(owned) {}

Output::Output(Output&& other) noexcept
    : fd_(other.fd_), name_(std::move(other.name_)), owned_(std::exchange(other.owned_, false)) {}

Output& Output::operator=(Output&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(name_, other.name_);
  std::swap(owned_, other.owned_);
  return *this;
}

Output::~Output() {
  if (owned_) close(fd_);
}

Output Output::Standard() { return {STDOUT_FILENO, "standard output", false}; }

Result<Output> Output::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return IoError("cannot write " + path + ": " + std::strerror(errno));
  return Output(fd, path, true);
}

Result<Output> Output::Append(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return IoError("cannot write " + path + ": " + std::strerror(errno));
  return Output(fd, path, true);
}

Result<Output> Output::AppendAlone(const std::string& path) {
  LS_ASSIGN(Output output, Append(path));
  // A file system without locks has none to be refused by.
  if (flock(output.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return IoError("cannot write " + path + ": another process is writing it");
  return output;
}

Status Output::Error(int error) const {
  return {error == EPIPE ? StatusCode::kCancelled : StatusCode::kIo,
          "cannot write " + name_ + ": " + std::strerror(error)};
}

Status Output::Check() const {
  const int flags = fcntl(fd_, F_GETFL);
  if (flags == -1) return Error(errno);
  if ((flags & O_ACCMODE) == O_RDONLY) return Error(EBADF);
  return {};
}

Status Output::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd_, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      WaitUntilReady(fd_, POLLOUT);
    } else if (n == 0 || errno != EINTR) {
      return Error(n == 0 ? ENOSPC : errno);
    }
  }
  return {};
}

Status Output::Replace(std::string_view text) {
  const bool has_contents = lseek(fd_, 0, SEEK_SET) == 0;
  LS_TRY(Write(text));
  if (has_contents && ftruncate(fd_, static_cast<off_t>(text.size())) != 0 && errno != EINVAL)
    return Error(errno);
  return {};
}

Status Output::CutTo(uint64_t size) {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0 && errno != EINVAL) return Error(errno);
  return {};
}

Status Output::Sync() {
  if (fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) return Error(errno);
  return {};
}

int FailOutput(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return kExitOutput;
  return Fail(kExitOutput, status.message());
}

int WriteOutput(std::string_view text) {
  const Status written = Output::Standard().Write(text);
  return written.ok() ? kExitOk : FailOutput(written);
}

bool IsTerminal(int fd) { return isatty(fd) == 1; }

void WaitUntilReady(int fd, short events) {
  pollfd waiting{.fd = fd, .events = events, .revents = 0};
  (void)poll(&waiting, 1, -1);  // what went wrong the next read or write says
}

}  // namespace longspec::cli
