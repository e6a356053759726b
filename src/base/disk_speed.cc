// SPDX-License-Identifier: Apache-2.0
#include "base/disk_speed.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

class ProbeFile {
 public:
  static Result<ProbeFile> Create(const std::string& folder) {
    std::string name = folder + "/longspec-speed-XXXXXX";
    const int fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) return IoError(folder + ": no file can be made in this folder: " + std::strerror(errno));
    unlink(name.c_str());
    return ProbeFile(folder, fd);
  }
  ProbeFile(ProbeFile&& other) noexcept
      : folder_(std::move(other.folder_)), fd_(std::exchange(other.fd_, -1)) {}
  ProbeFile& operator=(ProbeFile&&) = delete;
  ~ProbeFile() {
    if (fd_ >= 0) close(fd_);
  }

  Status Write(size_t bytes) {
    std::vector<uint64_t> piece(kPiece / sizeof(uint64_t));
    uint64_t random = 0x9E3779B97F4A7C15;
    for (size_t at = 0; at < bytes;) {
      // Bytes that no file system can make fewer of.
      for (uint64_t& word : piece) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        word = random;
      }
      const ssize_t n = pwrite(fd_, piece.data(), std::min(kPiece, bytes - at), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return IoError(folder_ + ": cannot write: " + std::strerror(errno));
      at += static_cast<size_t>(n);
    }
    // Pages that the disk does not have yet cannot be dropped.
    if (fdatasync(fd_) != 0) return IoError(folder_ + ": cannot write: " + std::strerror(errno));
    posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    return {};
  }

  Result<double> BytesPerSecond(size_t bytes) {
    std::vector<std::byte> piece(kPiece);
    const double start = NowMs();
    for (size_t at = 0; at < bytes;) {
      const ssize_t n = pread(fd_, piece.data(), std::min(kPiece, bytes - at), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return IoError(folder_ + ": cannot read: " + std::strerror(n < 0 ? errno : EIO));
      at += static_cast<size_t>(n);
    }
    return static_cast<double>(bytes) * 1000.0 / std::max(NowMs() - start, 1e-3);
  }

 private:
  ProbeFile(std::string folder, int fd) : folder_(std::move(folder)), fd_(fd) {}
  std::string folder_;
  int fd_;
};

}  // namespace

Result<ReadSpeeds> MeasureReadSpeeds(const std::string& folder, size_t bytes) {
  LS_ASSIGN(ProbeFile file, ProbeFile::Create(folder));
  LS_TRY(file.Write(bytes));
  ReadSpeeds speeds;
  LS_ASSIGN(speeds.disk, file.BytesPerSecond(bytes));
  LS_ASSIGN(speeds.memory, file.BytesPerSecond(bytes));
  return speeds;
}

}  // namespace longspec
