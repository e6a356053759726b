// SPDX-License-Identifier: Apache-2.0
//
// The k largest of a row by a block of threads. A value and its index make one integer of 64 bits, so that
// all differ and the wanted order is that of the integers. The k-th is found byte by byte, from the highest,
// by counting; then whoever is not below it counts how many are above.
#pragma once

#include "kernels/gpu/cta.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

struct TopK {
  struct Args {
    const float* x;
    int64_t stride;
    int n, n_rows, k;
    uint64_t* scratch;  // (n_rows, k)
    float* values;      // (n_rows, k)
    int32_t* indices;   // (n_rows, k)
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 512;
  static Grid GridOf(const Args& a) { return {.width = a.n_rows, .shared_bytes = sizeof(Shared)}; }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    auto& shared = *reinterpret_cast<Shared*>(cta.Shared());
    const float* x = a.x + cta.block() * a.stride;
    const int64_t to = int64_t{cta.block()} * a.k;
    const uint64_t least = KthOf(cta, x, a.n, a.k, shared);
    for (int i = cta.thread(); i < a.n; i += kThreads) {
      const uint64_t key = KeyOf<Cta>(x[i], i);
      if (key >= least) a.scratch[to + Cta::AddTo(&shared.n_found, 1)] = key;
    }
    cta.Sync();
    for (int i = cta.thread(); i < a.k; i += kThreads) {
      const uint64_t key = a.scratch[to + i];
      int place = 0;
      for (int j = 0; j < a.k; ++j) place += a.scratch[to + j] > key ? 1 : 0;
      const auto index = static_cast<int32_t>(~static_cast<uint32_t>(key));
      a.indices[to + place] = index;
      a.values[to + place] = x[index];
    }
  }

 private:
  static constexpr int kDigits = 256, kOfLane = kDigits / kWarp;
  struct Shared {
    int counts[kDigits];
    int digit, wanted, n_there;  // of the byte in turn
    int n_found;
  };

  // Larger for larger values, and for lower indices of equal ones.
  template <class Cta>
  static LONGSPEC_GPU uint64_t KeyOf(float x, int index) {
    uint32_t bits = x == 0.0F ? 0 : Cta::ToBits(x);  // -0 is 0
    bits ^= (bits & 0x80000000) != 0 ? 0xFFFFFFFF : 0x80000000;
    return static_cast<uint64_t>(bits) << 32 | ~static_cast<uint32_t>(index);
  }

  // A number that k keys are not below.
  template <class Cta>
  static LONGSPEC_GPU uint64_t KthOf(const Cta& cta, const float* x, int n, int k, Shared& shared) {
    uint64_t above = 0;  // the bytes that are known
    int wanted = k;
    if (cta.thread() == 0) shared.n_found = 0;
    for (int shift = 56;; shift -= 8) {
      if (cta.thread() < kDigits) shared.counts[cta.thread()] = 0;
      cta.Sync();
      for (int i = cta.thread(); i < n; i += kThreads) {
        const uint64_t key = KeyOf<Cta>(x[i], i);
        if (shift == 56 || key >> (shift + 8) == above) Cta::AddTo(&shared.counts[key >> shift & 255], 1);
      }
      cta.Sync();
      if (cta.thread() < kWarp) FindDigit(cta, wanted, shared);
      cta.Sync();
      above = above << 8 | static_cast<uint64_t>(shared.digit);
      wanted = shared.wanted;
      if (wanted == shared.n_there || shift == 0) return above << shift;
    }
  }

  // The highest digit that, with all above it, has at least `wanted` keys. A lane has eight, lane 0 the
  // highest.
  template <class Cta>
  static LONGSPEC_GPU void FindDigit(const Cta& cta, int wanted, Shared& shared) {
    const int lane = cta.thread(), highest = kDigits - 1 - lane * kOfLane;
    int own = 0;
    for (int i = 0; i < kOfLane; ++i) own += shared.counts[highest - i];
    int up_to = own;
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = cta.Shuffle(up_to, lane - step < 0 ? 0 : lane - step);
      if (lane >= step) up_to += other;
    }
    int before = up_to - own;
    if (before >= wanted || up_to < wanted) return;
    int digit = highest;
    for (; before + shared.counts[digit] < wanted; --digit) before += shared.counts[digit];
    shared.digit = digit;
    shared.wanted = wanted - before;
    shared.n_there = shared.counts[digit];
  }
};

}  // namespace longspec::kernels::gpu
