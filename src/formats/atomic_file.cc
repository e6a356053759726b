// SPDX-License-Identifier: Apache-2.0
#include "formats/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/status_macros.h"

namespace longspec {
namespace {

bool IsFull(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

Status SystemError(const std::string& path, const char* what) {
  const int error = errno;
  std::string message = path + ": " + what + ": " + std::strerror(error);
  return IsFull(error) ? ResourceExhausted(std::move(message)) : IoError(std::move(message));
}

std::string TemporaryName(const std::string& path) { return path + ".tmp"; }

// A file of this name that this process alone writes.
Result<int> OpenLocked(const std::string& name) {
  for (;;) {
    const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return SystemError(name, "cannot be created");
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd);
      return IoError(name + ": another process is writing it");
    }
    // Between opening and locking, the one who wrote it may have renamed or removed it: then the name is
    // free.
    struct stat ours {
    }, named{};
    if (fstat(fd, &ours) == 0 && stat(name.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
        ours.st_dev == named.st_dev) {
      return fd;
    }
    close(fd);
  }
}

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

Result<AtomicFile> AtomicFile::Create(const std::string& path, uint64_t reserve) {
  // What a link names is replaced, not the link.
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    const std::filesystem::path named = std::filesystem::canonical(path, error);
    if (!error) return Create(named.string(), reserve);
  }
  const std::string name = TemporaryName(path);
  LS_ASSIGN(const int fd, OpenLocked(name));
  AtomicFile file(path, fd);
  // Who could not read the file before cannot read it now. Best effort: some file systems know no modes.
  struct stat before {};
  if (stat(path.c_str(), &before) == 0 && S_ISREG(before.st_mode)) (void)!fchmod(fd, before.st_mode & 07777);
  // What a killed process left. Devices cannot be cut short, and have nothing to cut.
  struct stat info {};
  if (fstat(fd, &info) == 0 && info.st_size > 0 && ftruncate(fd, 0) != 0) {
    return SystemError(name, "cannot be emptied");
  }
  if (reserve > 0 && fallocate(fd, 0, 0, static_cast<off_t>(reserve)) != 0 && IsFull(errno)) {
    return SystemError(name, "cannot be written");
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  unlink(TemporaryName(path_).c_str());  // while it is locked: later it may be another's
  close(fd_);
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
