// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace longspec {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;

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
    // Fresh anonymous pages: zeroed by the kernel, and memory is taken only as it is touched. Mapped with
    // room to begin at a huge page's border, since only whole ones can be huge; the room is given back.
    const size_t mapped = bytes + kHugePage;
    void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    auto* begin = static_cast<std::byte*>(p);
    const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    const size_t page_bytes = (bytes + kPage - 1) / kPage * kPage;
    if (skip > 0) munmap(begin, skip);
    if (mapped - skip > page_bytes) munmap(begin + skip + page_bytes, mapped - skip - page_bytes);
    begin += skip;
    madvise(begin, bytes, MADV_HUGEPAGE);  // a wish: where it is refused nothing changes but speed
    data_ = {begin, Unmap{bytes}};
    return;
  }
  const size_t rounded = (bytes + 63) / 64 * 64;
  void* p = std::aligned_alloc(64, rounded);
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, rounded);
  data_ = {static_cast<std::byte*>(p), Unmap{bytes}};
}

}  // namespace longspec
