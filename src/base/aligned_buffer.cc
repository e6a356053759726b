// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace longspec {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void AlignedBuffer::Unmap::operator()(std::byte* p) const {
  if (bytes >= kHugePage) {
    munmap(p, bytes);
  } else {
    std::free(p);
  }
}

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes >= kHugePage) {
    // Fresh anonymous pages: zeroed by the kernel, and memory is taken only as it is touched.
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    madvise(p, bytes, MADV_HUGEPAGE);  // a wish: where it is refused nothing changes but speed
    data_ = {static_cast<std::byte*>(p), Unmap{bytes}};
    return;
  }
  const size_t rounded = (bytes + 63) / 64 * 64;
  void* p = std::aligned_alloc(64, rounded);
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, rounded);
  data_ = {static_cast<std::byte*>(p), Unmap{bytes}};
}

}  // namespace longspec
