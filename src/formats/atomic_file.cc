// SPDX-License-Identifier: Apache-2.0
#include "formats/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace longspec {
namespace {

Status SystemError(const std::string& path, const char* what) {
  const int error = errno;
  std::string message = path + ": " + what + ": " + std::strerror(error);
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return full ? ResourceExhausted(std::move(message)) : IoError(std::move(message));
}

std::string TemporaryName(const std::string& path) { return path + ".tmp"; }

// Makes the rename itself durable. Best effort: some file systems refuse to sync a directory.
void SyncParent(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  const std::string name = TemporaryName(path);
  const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError(name, "cannot be created");
  return AtomicFile(path, fd);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(TemporaryName(path_).c_str());
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Linux writes at most 2 GiB at once.
    const ssize_t n = write(fd_, bytes.data(), std::min<size_t>(bytes.size(), 1U << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path_, "cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::Commit() {
  if (fsync(fd_) != 0) return SystemError(path_, "cannot be written");
  if (rename(TemporaryName(path_).c_str(), path_.c_str()) != 0)
    return SystemError(path_, "cannot be replaced");
  close(std::exchange(fd_, -1));
  SyncParent(path_);
  return {};
}

}  // namespace longspec
