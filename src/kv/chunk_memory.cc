// SPDX-License-Identifier: Apache-2.0
#include "kv/chunk_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace longspec {
namespace {

constexpr size_t kFilePage = 4096;

size_t WholePages(size_t bytes) { return (bytes + kFilePage - 1) / kFilePage * kFilePage; }

std::string ErrorText(int error) { return std::strerror(error); }

}  // namespace

HostMemory::HostMemory(size_t chunk_bytes, size_t most_chunks)
    : chunk_bytes_(chunk_bytes), most_chunks_(most_chunks) {
  spare_.reserve(kMostSpare);  // so that Return cannot fail
}

Result<std::byte*> HostMemory::Take() {
  {
    const std::lock_guard lock(mutex_);
    ++taken_;
    if (!spare_.empty()) {
      std::byte* const chunk = spare_.back().Release();
      spare_.pop_back();
      return chunk;
    }
  }
  try {
    return AlignedBuffer(chunk_bytes_).Release();
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    --taken_;
    throw;
  }
}

void HostMemory::Return(std::byte* chunk) {
  AlignedBuffer given_up = AlignedBuffer::Owning(chunk, chunk_bytes_);
  const std::lock_guard lock(mutex_);
  --taken_;
  const size_t most_spare = std::min({kMostSpare, 4 + taken_ / 2, most_chunks_ - taken_});
  if (spare_.size() < most_spare) {
    spare_.push_back(std::move(given_up));
  } else if (spare_.size() > most_spare) {
    spare_.pop_back();
  }
}

size_t HostMemory::spare() const {
  const std::lock_guard lock(mutex_);
  return spare_.size();
}

FileMemory::FileMemory(std::string folder, size_t chunk_bytes)
    : folder_(std::move(folder)), mapped_bytes_(WholePages(chunk_bytes)) {}

FileMemory::~FileMemory() {
  for (std::byte* chunk : all_) munmap(chunk, mapped_bytes_);
  if (fd_ >= 0) close(fd_);
}

Result<std::byte*> FileMemory::Take() {
  const std::lock_guard lock(mutex_);
  if (fd_ < 0) {
    std::string name = folder_ + "/longspec-kv-XXXXXX";
    fd_ = mkostemp(name.data(), O_CLOEXEC);
    if (fd_ < 0) return IoError(folder_ + ": no file can be made in this folder: " + ErrorText(errno));
    unlink(name.c_str());
  }
  if (!unused_.empty()) {
    std::byte* const chunk = unused_.back();
    unused_.pop_back();
    return chunk;
  }
  all_.reserve(all_.size() + 1);
  unused_.reserve(all_.capacity());  // so that Return cannot fail
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
  all_.push_back(static_cast<std::byte*>(mapped));
  end_ += mapped_bytes_;
  return all_.back();
}

void FileMemory::Return(std::byte* chunk) {
  const std::lock_guard lock(mutex_);
  unused_.push_back(chunk);
}

void FileMemory::Prefetch(const std::byte* begin, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = at / kFilePage * kFilePage;
  // A wish: where it is refused nothing changes but speed.
  madvise(reinterpret_cast<void*>(first), bytes + (at - first), MADV_WILLNEED);
}

uint64_t FileMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

}  // namespace longspec
