// SPDX-License-Identifier: Apache-2.0
//
// A layer of chunks of keys and values that lie in memory of the host, copied side by side into the card's.
// Few blocks of threads, so that they find room beside whatever else the card computes: they wait for the
// host's memory most of the time.
#pragma once

#include "kernels/gpu/cta.h"

namespace longspec::kernels::gpu {

struct FetchChunks {
  struct Args {
    const std::byte* const* chunks;  // (n): where the layers of a chunk lie; null: nothing is copied
    int n;
    int64_t offset, bytes;  // what of each; multiples of 16
    std::byte* to;          // (n, bytes)
    bool operator==(const Args&) const = default;
  };
  static constexpr int kThreads = 256, kMostBlocks = 32;
  static Grid GridOf(const Args& a) {
    const int wanted = CeilDiv(a.n * (a.bytes / kPiece), kThreads * kTogether);
    return {.width = wanted < kMostBlocks ? wanted : kMostBlocks};
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const int of_chunk = static_cast<int>(a.bytes / kPiece), n = a.n * of_chunk;
    const int step = cta.n_blocks() * kThreads;
    for (int first = cta.block() * kThreads + cta.thread(); first < n; first += kTogether * step) {
      // All of them are on their way before the first is stored.
      Bytes16 pieces[kTogether] = {};
      LONGSPEC_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int piece = first + i * step;
        const std::byte* chunk = piece < n ? a.chunks[piece / of_chunk] : nullptr;
        if (chunk != nullptr) pieces[i] = Cta::Load16(chunk + a.offset + int64_t{piece % of_chunk} * kPiece);
      }
      LONGSPEC_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int piece = first + i * step;
        if (piece < n && a.chunks[piece / of_chunk] != nullptr)
          *reinterpret_cast<Bytes16*>(a.to + int64_t{piece} * kPiece) = pieces[i];
      }
    }
  }

 private:
  static constexpr int kPiece = 16, kTogether = 4;
};

}  // namespace longspec::kernels::gpu
