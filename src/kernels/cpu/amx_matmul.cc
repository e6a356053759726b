// SPDX-License-Identifier: Apache-2.0
//
// Products with bf16 weights on AMX tiles, in arithmetic "bf16-amx" (ops.h).
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/bf16_lanes.h"

namespace longspec::kernels::LONGSPEC_AMX_NAMESPACE {
namespace {

// Blocks of k whose weights are put in pairs at a time: with two groups, 32 KiB.
constexpr int kPanelBlocks = 16;

// N neighbouring groups of outputs, and `n_tiles` tiles of rows from `row` on.
template <int N>
void Groups(const MatmulBf16Args& a, const Tiles& tiles, int n_tiles, int n_rows, int row, int group) {
  constexpr int kColumns = N * kRowGroup;
  alignas(64) uint16_t panel[kPanelBlocks * N * kTileNumbers];
  alignas(64) float sums[kMostTiles * kTileRows * kColumns];
  const std::byte* weights = a.w->data + static_cast<size_t>(group) * a.w->group_bytes;
  constexpr int64_t kPanel = kPanelBlocks * kAmxBlock;
  for (int64_t begin = 0; begin < a.w->n_in; begin += kPanel) {
    const int64_t left = a.w->n_in - begin, numbers = left < kPanel ? left : kPanel;
    const auto n_blocks = static_cast<int>((numbers + kAmxBlock - 1) / kAmxBlock);
    for (int n = 0; n < N; ++n) {
      const std::byte* of_group = weights + static_cast<size_t>(n) * a.w->group_bytes;
      const auto at = [&](int64_t k) { return of_group + static_cast<size_t>(k) * kRowGroup * kBf16Bytes; };
      for (int i = 0; i < n_blocks; ++i) {
        PutTile(at, begin + i * kAmxBlock, a.w->n_in, panel + (i * N + n) * kTileNumbers);
      }
    }
    tiles.MultiplyRows<N>(n_tiles, a.x + row * a.x_stride + begin, a.x_stride, panel, n_blocks, begin > 0,
                          sums, kColumns);
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int n = 0; n < N; ++n) {
      const __m512 of_group = _mm512_loadu_ps(sums + r * kColumns + n * kRowGroup);
      StoreGroup(a.y + (row + r) * a.y_stride, a.w->n_out, group + n, of_group, a.add);
    }
  }
}

}  // namespace

void MatmulBf16(const MatmulBf16Args& a) {
  if (a.w->format != WeightFormat::kBF16Amx) return base::MatmulBf16(a);
  ForEachPart(a.n_rows, kMostTiles, [&](int row, int n_tiles, int tile_rows) {
    const Tiles tiles(tile_rows);
    const int n_rows = n_tiles * tile_rows;
    int group = a.group_begin;
    for (; group + 2 <= a.group_end; group += 2) Groups<2>(a, tiles, n_tiles, n_rows, row, group);
    if (group < a.group_end) Groups<1>(a, tiles, n_tiles, n_rows, row, group);
  });
}

bool TilesSumAsDocumented() {
  // Blocks of products of all magnitudes that cancel, round and underflow, from a fixed generator.
  alignas(64) uint16_t rows[kTileRows * 2 * kAmxBlock], columns[2 * kTileNumbers];
  alignas(64) float sums[2 * kTileRows * kTileRows];
  float* by_tiles = sums;
  float* by_lanes = sums + kTileRows * kTileRows;
  uint32_t state = 1;
  const auto next = [&state] { return (state = state * 1664525U + 1013904223U) >> 8; };
  for (int round = 0; round < 32; ++round) {
    const uint32_t least = round % 4 == 0 ? 48 : round % 4 == 1 ? 56 : 120, range = round % 4 == 3 ? 16 : 8;
    const auto number = [&] {
      const uint32_t bits = next();
      return static_cast<uint16_t>((bits & 0x8000U) | (least + (bits >> 16U) % range) << 7U | (bits & 0x70U));
    };
    for (uint16_t& x : rows) x = number();
    alignas(64) uint16_t stored[2 * kAmxBlock * kTileRows];
    for (uint16_t& x : stored) x = number();
    const auto at = [&](int64_t k) { return reinterpret_cast<const std::byte*>(stored + k * kTileRows); };
    for (int i = 0; i < 2; ++i)
      PutTile(at, i * kAmxBlock, int64_t{2} * kAmxBlock, columns + i * kTileNumbers);
    {
      const Tiles tiles(kTileRows);
      tiles.Multiply<1, 1>(rows, 2 * kAmxBlock, columns, 2, false, by_tiles, kTileRows);
    }
    const PackedMatrix w = {.data = reinterpret_cast<const std::byte*>(stored),
                            .group_bytes = sizeof(stored),
                            .n_out = kTileRows,
                            .n_in = int64_t{2} * kAmxBlock,
                            .format = WeightFormat::kBF16Amx};
    base::MatmulBf16({.w = &w,
                      .x = rows,
                      .x_stride = int64_t{2} * kAmxBlock,
                      .y = by_lanes,
                      .y_stride = kTileRows,
                      .n_rows = kTileRows,
                      .group_begin = 0,
                      .group_end = 1});
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the same bits are asked for
    if (std::memcmp(by_tiles, by_lanes, kTileRows * kTileRows * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace longspec::kernels::LONGSPEC_AMX_NAMESPACE
