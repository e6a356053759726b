// SPDX-License-Identifier: Apache-2.0
//
// The Cta (kernels/gpu/cta.h) whose threads are fibers. What a GPU would fault on ends the program: addresses
// that are not aligned, and lanes that do not meet.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/gpu/cta.h"
#include "kernels/testing/fiber_block.h"
#include "tensor/half.h"

namespace longspec::kernels::testing {

void ShuffleLanes(FiberBlock::Meeting& meeting);  // in: two words, and a lane
void NoOperation(FiberBlock::Meeting& meeting);
void MultiplyTiles16(FiberBlock::Meeting& meeting);  // in: c, a0, a1, b
void MultiplyTiles32(FiberBlock::Meeting& meeting);  // in: c, a, b

class FiberCta {
 public:
  FiberCta(FiberBlock* block, int thread, int x, int y, int n_blocks)
      : fibers_(block), thread_(thread), x_(x), y_(y), n_blocks_(n_blocks) {}
  ~FiberCta() { WaitCopies<0>(false); }
  FiberCta(const FiberCta&) = delete;
  FiberCta& operator=(const FiberCta&) = delete;

  int thread() const { return thread_; }
  int n_threads() const { return fibers_->n_threads(); }
  int block() const { return x_; }
  int block_y() const { return y_; }
  int n_blocks() const { return n_blocks_; }
  std::byte* Shared() const { return fibers_->shared(); }
  void Sync() const { fibers_->Sync(); }
  void SyncWarp() const {
    uint32_t nothing = 0;
    fibers_->Meet(NoOperation, &nothing, 1, &nothing, 1);
  }

  template <typename T>
  T Shuffle(T value, int lane) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    uint32_t in[3] = {0, 0, static_cast<uint32_t>(lane) % gpu::kWarp};
    std::memcpy(in, &value, sizeof(T));
    uint32_t out[2];
    fibers_->Meet(ShuffleLanes, in, 3, out, 2);
    std::memcpy(&value, out, sizeof(T));
    return value;
  }
  template <typename T>
  T ShuffleXor(T value, int mask) const {
    return Shuffle(value, (thread_ % gpu::kWarp) ^ mask);
  }
  void Mma16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) const {
    uint32_t in[7] = {0, 0, 0, 0, a0, a1, b};
    std::memcpy(in, c, sizeof(c));
    fibers_->Meet(MultiplyTiles16, in, 7, in, 4);
    std::memcpy(c, in, sizeof(c));
  }
  void Mma32(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    uint32_t in[10] = {0, 0, 0, 0, a[0], a[1], a[2], a[3], b[0], b[1]};
    std::memcpy(in, c, sizeof(c));
    fibers_->Meet(MultiplyTiles32, in, 10, in, 4);
    std::memcpy(c, in, sizeof(c));
  }

  void CopyAsync(void* to, const void* from) const {
    MustBeAligned(to);
    MustBeAligned(from);
    std::memset(to, 0xC5, 16);  // nobody may read it before it has come
    copies_.push_back({to, from, n_groups_});
  }
  void CommitCopies() const { ++n_groups_; }
  template <int N>
  void WaitCopies(bool by_kernel = true) const {
    if (by_kernel && fibers_->faults().dropped_waits) return;
    size_t n_left = 0;
    for (const Copy& copy : copies_) {
      if (by_kernel && copy.group >= n_groups_ - N) {
        copies_[n_left++] = copy;
      } else {
        std::memcpy(copy.to, copy.from, 16);
      }
    }
    copies_.resize(n_left);
  }

  static gpu::Bytes8 Load8(const void* p) { return Load<gpu::Bytes8>(p); }
  static gpu::Bytes16 Load16(const void* p) { return Load<gpu::Bytes16>(p); }
  static gpu::Bytes8 Stream8(const void* p) { return Load<gpu::Bytes8>(p); }
  static gpu::Bytes16 Stream16(const void* p) { return Load<gpu::Bytes16>(p); }

  static int32_t AddTo(int32_t* to, int32_t n) { return __atomic_fetch_add(to, n, __ATOMIC_RELAXED); }

  static float Fma(float a, float b, float c) { return std::fma(a, b, c); }
  static float Add(float a, float b) { return a + b; }
  static float Sub(float a, float b) { return a - b; }
  static float Mul(float a, float b) { return a * b; }
  static float Div(float a, float b) { return a / b; }
  static float Sqrt(float a) { return std::sqrt(a); }
  static float Rint(float a) { return std::nearbyint(a); }
  static double DAdd(double a, double b) { return a + b; }
  static double DSub(double a, double b) { return a - b; }
  static double DMul(double a, double b) { return a * b; }
  static double DDiv(double a, double b) { return a / b; }
  static float Bits(uint32_t bits) { return std::bit_cast<float>(bits); }
  static uint32_t ToBits(float f) { return std::bit_cast<uint32_t>(f); }
  static float Half(uint16_t bits) { return HalfToFloat(bits); }
  static uint16_t ToHalf(float f) { return FloatToHalf(f); }
  static int32_t Dot4(uint32_t u, uint32_t s, int32_t c) {
    for (int i = 0; i < 32; i += 8) c += static_cast<int>(u >> i & 255) * static_cast<int8_t>(s >> i & 255);
    return c;
  }
  static int32_t DotS4(uint32_t s, uint32_t t, int32_t c) {
    for (int i = 0; i < 32; i += 8)
      c += static_cast<int8_t>(s >> i & 255) * static_cast<int8_t>(t >> i & 255);
    return c;
  }
  template <int kHalf>
  static int32_t Dot2(uint32_t p, uint32_t s, int32_t c) {
    for (int i = 0; i < 2; ++i)
      c += static_cast<int16_t>(p >> 16 * i & 0xFFFF) * static_cast<int8_t>(s >> (16 * kHalf + 8 * i) & 255);
    return c;
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    int group;
  };
  static void MustBeAligned(const void* p, size_t bytes = 16) {
    if (reinterpret_cast<uintptr_t>(p) % bytes == 0) return;
    std::fprintf(stderr, "emulated GPU: %zu bytes at an address that is no multiple of that\n", bytes);
    std::abort();
  }
  template <typename T>
  static T Load(const void* p) {
    MustBeAligned(p, sizeof(T));
    T bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return bytes;
  }

  FiberBlock* fibers_;
  int thread_, x_, y_, n_blocks_;
  mutable std::vector<Copy> copies_;
  mutable int n_groups_ = 0;
};

}  // namespace longspec::kernels::testing
