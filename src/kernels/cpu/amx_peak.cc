// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/peak_loops.h"

namespace longspec::kernels::amx {

// tdpbf16ps: 16 x 16 sums of 32 products.
int64_t PeakBf16Amx(int64_t rounds) {
  alignas(64) uint16_t ones[kTileNumbers];
  for (uint16_t& x : ones) x = 0x3F80;
  const Tiles tiles(kTileRows);
  asm volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, kTileBytes);
  _tile_loadd(5, ones, kTileBytes);
  _tile_loadd(6, ones, kTileBytes);
  _tile_loadd(7, ones, kTileBytes);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return rounds * 4 * kTileRows * kTileRows * kAmxBlock;
}

}  // namespace longspec::kernels::amx
