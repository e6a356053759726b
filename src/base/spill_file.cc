// SPDX-License-Identifier: Apache-2.0
#include "base/spill_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr size_t kPage = 4096;

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string ErrorText(int error) { return std::strerror(error); }

}  // namespace

SpillFile::SpillFile(std::string folder, int fd, size_t part_bytes)
    : folder_(std::move(folder)), fd_(fd), mapped_bytes_(WholePages(part_bytes)) {}

SpillFile::~SpillFile() {
  for (std::byte* part : all_) munmap(part, mapped_bytes_);
  close(fd_);
}

Result<std::shared_ptr<SpillFile>> SpillFile::Create(const std::string& folder, size_t part_bytes) {
  std::string name = folder + "/longspec-kv-XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return IoError(folder + ": no file can be made in this folder: " + ErrorText(errno));
  unlink(name.c_str());
  return std::shared_ptr<SpillFile>(new SpillFile(folder, fd, part_bytes));
}

Result<std::byte*> SpillFile::Take() {
  const std::lock_guard lock(mutex_);
  if (!unused_.empty()) {
    std::byte* const part = unused_.back();
    unused_.pop_back();
    return part;
  }
  // A file with holes would end the process (SIGBUS) when the disk is full and one of them is written.
  if (const int error = posix_fallocate(fd_, static_cast<off_t>(end_), static_cast<off_t>(mapped_bytes_))) {
    return ResourceExhausted(folder_ + ": no room for the key-value cache beyond " +
                             std::to_string(end_ >> 20) + " MiB: " + ErrorText(error));
  }
  void* const mapped =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(end_));
  if (mapped == MAP_FAILED) {
    return ResourceExhausted(folder_ + ": the key-value cache cannot be mapped: " + ErrorText(errno));
  }
  // Which bytes come next, Prefetch says. Left to itself the system reads as far ahead as the disk's setting
  // says, 8 MiB on some machines, at each piece of a layer, and what it reads in vain drives out what was
  // asked for.
  madvise(mapped, mapped_bytes_, MADV_RANDOM);
  all_.reserve(all_.size() + 1);
  unused_.reserve(all_.capacity());  // so that Return cannot fail
  all_.push_back(static_cast<std::byte*>(mapped));
  end_ += mapped_bytes_;
  return all_.back();
}

void SpillFile::Return(std::byte* part) {
  const std::lock_guard lock(mutex_);
  unused_.push_back(part);
}

void SpillFile::Prefetch(const std::byte* begin, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = at / kPage * kPage;
  // A wish: where it is refused nothing changes but speed.
  madvise(reinterpret_cast<void*>(first), bytes + (at - first), MADV_WILLNEED);
}

uint64_t SpillFile::bytes() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

}  // namespace longspec
