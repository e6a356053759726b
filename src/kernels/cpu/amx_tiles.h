// SPDX-License-Identifier: Apache-2.0
//
// Products on AMX tiles: registers of 16 rows of 64 bytes. TDPBF16PS multiplies a tile of rows of 32 numbers
// with one of 32 times 16 numbers, whose 16 rows hold pairs of neighbouring k, and adds the 16 x 16 sums to a
// third, which is one block of arithmetic "bf16-amx" (ops.h). Four tiles of sums share two of each factor.
// Everything lives in an unnamed namespace on purpose, as in avx512_math.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx512_math.h"
#include "kernels/ops.h"

#ifdef LONGSPEC_EMULATE_AMX
#include "kernels/testing/amx_emulation.h"
#endif

namespace longspec::kernels {
namespace {  // NOLINT(google-build-namespaces)

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;                       // of a row
inline constexpr int kTileNumbers = kTileRows * kAmxBlock;  // of a factor
inline constexpr int kMostTiles = 8;                        // of rows, in one part of a call

// Tiles 0 to 3 are sums, 4 and 5 rows of the left factor, 6 and 7 of the right one. While one lives, those of
// sums and of the left factor have `rows` rows.
class Tiles {
 public:
  explicit Tiles(int rows) : rows_(rows) {
    Config config;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = kTileBytes;
      config.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : kTileRows);
    }
    // Some compilers believe that this reads less than the whole configuration.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  // c (M tiles of rows, N of 16 columns) = or += a (M tiles of rows, 32 n_blocks) * b (n_blocks, N, 16, 32).
  // Strides are in numbers.
  template <int M, int N>
  void Multiply(const uint16_t* a, int64_t a_stride, const uint16_t* b, int n_blocks, bool add, float* c,
                int64_t c_stride) const {
    // Some compilers do not know that loading a tile reads memory.
    asm volatile("" ::: "memory");
    const int64_t a_bytes = a_stride * 2, c_bytes = c_stride * 4;
    float* lower = c + rows_ * c_stride;
    if (add) {
      _tile_loadd(0, c, c_bytes);
      if constexpr (N == 2) _tile_loadd(1, c + 16, c_bytes);
      if constexpr (M == 2) _tile_loadd(2, lower, c_bytes);
      if constexpr (M == 2 && N == 2) _tile_loadd(3, lower + 16, c_bytes);
    } else {
      _tile_zero(0);
      if constexpr (N == 2) _tile_zero(1);
      if constexpr (M == 2) _tile_zero(2);
      if constexpr (M == 2 && N == 2) _tile_zero(3);
    }
    for (int block = 0; block < n_blocks; ++block, a += kAmxBlock, b += N * kTileNumbers) {
      _tile_loadd(6, b, kTileBytes);
      if constexpr (N == 2) _tile_loadd(7, b + kTileNumbers, kTileBytes);
      _tile_loadd(4, a, a_bytes);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (N == 2) _tile_dpbf16ps(1, 4, 7);
      if constexpr (M == 2) {
        _tile_loadd(5, a + rows_ * a_stride, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (N == 2) _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, c, c_bytes);
    if constexpr (N == 2) _tile_stored(1, c + 16, c_bytes);
    if constexpr (M == 2) _tile_stored(2, lower, c_bytes);
    if constexpr (M == 2 && N == 2) _tile_stored(3, lower + 16, c_bytes);
    asm volatile("" ::: "memory");
  }

  // The same for any number of tiles of rows.
  template <int N>
  void MultiplyRows(int n_tiles, const uint16_t* a, int64_t a_stride, const uint16_t* b, int n_blocks,
                    bool add, float* c, int64_t c_stride) const {
    int tile = 0;
    for (; tile + 2 <= n_tiles; tile += 2, a += 2 * rows_ * a_stride, c += 2 * rows_ * c_stride) {
      Multiply<2, N>(a, a_stride, b, n_blocks, add, c, c_stride);
    }
    if (tile < n_tiles) Multiply<1, N>(a, a_stride, b, n_blocks, add, c, c_stride);
  }

 private:
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };

  int rows_;
};

// Calls f(first row, tiles, rows of a tile) for parts of n_rows rows: tiles of 16 as long as they last, then
// one of what is left.
template <typename F>
inline void ForEachPart(int n_rows, int most_tiles, const F& f) {
  for (int row = 0; row < n_rows;) {
    const int left = n_rows - row, whole = left / kTileRows;
    const int tiles = whole == 0 ? 1 : whole < most_tiles ? whole : most_tiles;
    const int rows = whole == 0 ? left : kTileRows;
    f(row, tiles, rows);
    row += tiles * rows;
  }
}

// A right factor: the 16 numbers at b(k) of each k from `begin` on, in pairs of k; zeros from `end` on. out:
// (16, 32).
template <typename B>
inline void PutTile(const B& b, int64_t begin, int64_t end, uint16_t* out) {
  for (int pair = 0; pair < kTileRows; ++pair, out += kAmxBlock) {
    const int64_t k = begin + 2 * pair;
    const __m256i even = k < end ? Load16Bits(b(k)) : _mm256_setzero_si256();
    const __m256i odd = k + 1 < end ? Load16Bits(b(k + 1)) : _mm256_setzero_si256();
    _mm512_storeu_si512(out, InPairs(_mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1)));
  }
}

}  // namespace
}  // namespace longspec::kernels
