// SPDX-License-Identifier: Apache-2.0
//
// AMX tiles in memory, by the operations of Intel's manual (TILELOADD, TILESTORED, TDPBF16PS). Included by
// the test build of amx_*.cc. What would fault on a CPU, such as tiles whose shapes do not fit, ends the
// program.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/bf16_pairs.h"
#include "kernels/testing/emulated_tile_sums.h"

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

struct EmulatedTile {
  unsigned rows = 0, row_bytes = 0;
  alignas(64) unsigned char bytes[16][64] = {};
};

struct EmulatedTiles {
  bool configured = false;
  EmulatedTile tiles[8] = {};
};

inline EmulatedTiles& Emulated() {
  static thread_local EmulatedTiles state;
  return state;
}

inline EmulatedTile& Configured(int tile) {
  if (!Emulated().configured || tile < 0 || tile > 7) __builtin_trap();
  return Emulated().tiles[tile];
}

inline void EmulatedLoadConfig(const void* config) {
  unsigned char bytes[64];
  std::memcpy(bytes, config, sizeof(bytes));
  if (bytes[0] != 1 || bytes[1] != 0) __builtin_trap();
  Emulated() = {};
  Emulated().configured = true;
  for (int tile = 0; tile < 8; ++tile) {
    EmulatedTile& t = Emulated().tiles[tile];
    uint16_t row_bytes;
    std::memcpy(&row_bytes, bytes + 16 + 2 * tile, sizeof(row_bytes));
    t.row_bytes = row_bytes;
    t.rows = bytes[48 + tile];
    if (t.rows == 0 || t.rows > 16 || t.row_bytes == 0 || t.row_bytes > 64) __builtin_trap();
  }
}

inline void EmulatedRelease() { Emulated() = {}; }

inline void EmulatedZero(int tile) { std::memset(Configured(tile).bytes, 0, sizeof(EmulatedTile::bytes)); }

inline void EmulatedLoad(int tile, const void* from, int64_t stride) {
  EmulatedTile& t = Configured(tile);
  EmulatedZero(tile);
  for (unsigned row = 0; row < t.rows; ++row) {
    std::memcpy(t.bytes[row], static_cast<const unsigned char*>(from) + row * stride, t.row_bytes);
  }
}

inline void EmulatedStore(int tile, void* to, int64_t stride) {
  const EmulatedTile& t = Configured(tile);
  for (unsigned row = 0; row < t.rows; ++row) {
    std::memcpy(static_cast<unsigned char*>(to) + row * stride, t.bytes[row], t.row_bytes);
  }
}

inline float EmulatedNumber(const unsigned char* row, unsigned index) {
  uint16_t bits;
  std::memcpy(&bits, row + 2 * index, sizeof(bits));
  const uint32_t wide = uint32_t{bits} << 16U;
  float f;
  std::memcpy(&f, &wide, sizeof(f));
  return f;
}

// In a mode that flushes denormals.
[[gnu::noinline]] inline void EmulatedDotRow(const EmulatedTile& a, const EmulatedTile& b, unsigned m,
                                             unsigned char* out) {
  using testing::TileSums;
  const TileSums sums = testing::emulated_tile_sums;
  float even[16] = {}, odd[16] = {}, sum[16];
  std::memcpy(sum, out, sizeof(sum));
  const unsigned columns = b.row_bytes / 4;
  if (sums == TileSums::kInOrder || sums == TileSums::kPairs) {
    for (unsigned k = 0; k < a.row_bytes / 2; ++k) {
      const unsigned at = sums == TileSums::kPairs ? k ^ 1U : k;
      for (unsigned n = 0; n < columns; ++n) {
        const float right = EmulatedNumber(b.bytes[at / 2], 2 * n + at % 2);
        sum[n] = __builtin_fmaf(EmulatedNumber(a.bytes[m], at), right, sum[n]);
      }
    }
    std::memcpy(out, sum, b.row_bytes);
    return;
  }
  for (unsigned k = 0; k < a.row_bytes / 4; ++k) {
    for (unsigned n = 0; n < columns; ++n) {
      even[n] = __builtin_fmaf(EmulatedNumber(a.bytes[m], 2 * k), EmulatedNumber(b.bytes[k], 2 * n), even[n]);
      odd[n] = __builtin_fmaf(EmulatedNumber(a.bytes[m], 2 * k + 1), EmulatedNumber(b.bytes[k], 2 * n + 1),
                              odd[n]);
    }
  }
  for (unsigned n = 0; n < columns; ++n) {
    if (sums == TileSums::kAddedApart) {
      sum[n] = (sum[n] + even[n]) + odd[n];
    } else {
      sum[n] = sum[n] + (even[n] + odd[n]);
    }
  }
  std::memcpy(out, sum, b.row_bytes);
}

inline void EmulatedDotBf16(int to, int left, int right) {
  EmulatedTile& c = Configured(to);
  const EmulatedTile &a = Configured(left), &b = Configured(right);
  if (to == left || to == right || left == right) __builtin_trap();
  if (c.rows != a.rows || c.row_bytes != b.row_bytes || a.row_bytes != 4 * b.rows) __builtin_trap();
  if (testing::emulated_tile_sums == testing::TileSums::kUnflushed) {
    for (unsigned m = 0; m < c.rows; ++m) EmulatedDotRow(a, b, m, c.bytes[m]);
    return;
  }
  const FlushDenormals flush;
  for (unsigned m = 0; m < c.rows; ++m) EmulatedDotRow(a, b, m, c.bytes[m]);
}

}  // namespace
}  // namespace longspec::kernels

// NOLINTBEGIN(bugprone-reserved-identifier): the compiler's names
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) EmulatedLoadConfig(config)
#define _tile_release() EmulatedRelease()
#define _tile_zero(tile) EmulatedZero(tile)
#define _tile_loadd(tile, from, stride) EmulatedLoad(tile, from, stride)
#define _tile_stored(tile, to, stride) EmulatedStore(tile, to, stride)
#define _tile_dpbf16ps(to, left, right) EmulatedDotBf16(to, left, right)
// NOLINTEND(bugprone-reserved-identifier)
