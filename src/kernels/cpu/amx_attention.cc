// SPDX-License-Identifier: Apache-2.0
//
// Attention over bf16 keys and values on AMX tiles, in arithmetic "bf16-amx" (ops.h). Keys lie transposed and
// values in rows, as every table stores them: pairs are put together once for all rows of a part.
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/bf16_lanes.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/value_rows.h"

namespace longspec::kernels::LONGSPEC_AMX_NAMESPACE {
namespace {

constexpr int kPartTiles = 4;  // of rows: what is rounded for them stays in the second-level cache
constexpr int kPartRows = kPartTiles * kTileRows;
constexpr int kHeadBlocks = kMaxHeadDim / kAmxBlock;
constexpr int kChunkBlocks = kChunk / kAmxBlock;

int64_t Parts(int n_rows) {
  int64_t n = 0;
  ForEachPart(n_rows, kPartTiles, [&](int, int, int) { ++n; });
  return n;
}

int BlocksOf(int n) { return (n + kAmxBlock - 1) / kAmxBlock; }

// ---- Scores
// -------------------------------------------------------------------------------------------------------------

// Unscaled scores of `tiles` tiles of rows and N neighbouring blocks of 16 keys. q: (rows, kMaxHeadDim).
template <int N>
void ScoreBlocks(const ScoresArgs& a, const Tiles& tiles, int n_tiles, const uint16_t* q, int row, int block,
                 Fetch& fetch) {
  fetch.Step(N);
  alignas(64) uint16_t keys[kHeadBlocks * N * kTileNumbers];
  const int n_blocks = BlocksOf(a.head_dim);
  const size_t key_bytes = static_cast<size_t>(a.head_dim) * kKeyGroup * kBf16Bytes;
  for (int n = 0; n < N; ++n) {
    const std::byte* of_block = a.keys + static_cast<size_t>(block + n) * key_bytes;
    const auto at = [&](int64_t d) { return of_block + static_cast<size_t>(d) * kKeyGroup * kBf16Bytes; };
    for (int i = 0; i < n_blocks; ++i)
      PutTile(at, i * kAmxBlock, a.head_dim, keys + (i * N + n) * kTileNumbers);
  }
  tiles.MultiplyRows<N>(n_tiles, q, kMaxHeadDim, keys, n_blocks, false,
                        a.out + row * a.out_stride + int64_t{block} * kKeyGroup, a.out_stride);
}

// ---- Values
// -------------------------------------------------------------------------------------------------------------

// What a part of rows has in common: `n_tiles` tiles of rows, weights p (rows, kChunk) as bf16, keys [0,
// n_keys).
struct Part {
  int n_tiles;
  const uint16_t* p;
  int n_keys;
  float* o;
  int64_t o_stride;
  Fetch* fetch;
};

// N times 16 head dimensions from d on.
template <int N, typename ValueRow>
void ValueColumns(const ValueRow& value_row, const Part& part, const Tiles& tiles, int d) {
  part.fetch->Step(N);
  alignas(64) uint16_t values[kChunkBlocks * N * kTileNumbers];
  const int n_blocks = BlocksOf(part.n_keys);
  for (int n = 0; n < N; ++n) {
    const auto at = [&](int64_t key) {
      return value_row(static_cast<int>(key)) + static_cast<size_t>(d + n * kTileRows) * kBf16Bytes;
    };
    for (int i = 0; i < n_blocks; ++i)
      PutTile(at, i * kAmxBlock, part.n_keys, values + (i * N + n) * kTileNumbers);
  }
  tiles.MultiplyRows<N>(part.n_tiles, part.p, kChunk, values, n_blocks, true, part.o + d, part.o_stride);
}

template <typename Args, typename ValueRow>
void ValuesOnTiles(const Args& a, const ValueRow& value_row, const Upcoming& next) {
  Fetch fetch(next, Parts(a.n_rows) * a.head_dim / kTileRows);
  alignas(64) uint16_t p[kPartRows * kChunk];
  ForEachPart(a.n_rows, kPartTiles, [&](int row, int n_tiles, int tile_rows) {
    const int n_rows = n_tiles * tile_rows;
    int least = kChunk, most = 0;
    for (int r = 0; r < n_rows; ++r) {
      const int n_keys = KeysOfRow(a, row + r);
      least = n_keys < least ? n_keys : least;
      most = n_keys > most ? n_keys : most;
      base::RoundBf16(a.p + (row + r) * a.p_stride, n_keys, p + r * kChunk);
    }
    // A block that ends at other keys in each row is summed by rows.
    const int shared = least == most ? most : least / kAmxBlock * kAmxBlock;
    float* o = a.o + row * a.o_stride;
    if (shared > 0) {
      const Tiles tiles(tile_rows);
      const Part part = {n_tiles, p, shared, o, a.o_stride, &fetch};
      int d = 0;
      for (; d + 2 * kTileRows <= a.head_dim; d += 2 * kTileRows) ValueColumns<2>(value_row, part, tiles, d);
      if (d < a.head_dim) ValueColumns<1>(value_row, part, tiles, d);
    }
    const auto after_shared = [&](int key) { return value_row(shared + key); };
    const FlushDenormals flush;
    for (int r = 0; r < n_rows; ++r) {
      const int left = KeysOfRow(a, row + r) - shared;
      if (left <= 0) continue;
      TileValues<Lanes, 1>(after_shared, p + r * kChunk + shared, left, a.head_dim, o + r * a.o_stride, 0);
    }
  });
}

}  // namespace

void Scores(const ScoresArgs& a) {
  if (a.type != KvType::kBF16Amx) return base::Scores(a);
  alignas(64) uint16_t q[kPartRows * kMaxHeadDim];
  const __m512 scale = _mm512_set1_ps(a.scale);
  Fetch fetch(a.next, Parts(a.n_rows) * (a.block_end - a.block_begin));
  ForEachPart(a.n_rows, kPartTiles, [&](int row, int n_tiles, int tile_rows) {
    const int n_rows = n_tiles * tile_rows;
    for (int r = 0; r < n_rows; ++r) {
      base::RoundBf16(a.q + int64_t{row + r} * a.head_dim, a.head_dim, q + r * kMaxHeadDim);
    }
    {
      const Tiles tiles(tile_rows);
      int block = a.block_begin;
      for (; block + 2 <= a.block_end; block += 2) ScoreBlocks<2>(a, tiles, n_tiles, q, row, block, fetch);
      if (block < a.block_end) ScoreBlocks<1>(a, tiles, n_tiles, q, row, block, fetch);
    }
    for (int r = 0; r < n_rows; ++r) {
      float* out = a.out + (row + r) * a.out_stride;
      for (int key = a.block_begin * kKeyGroup; key < a.block_end * kKeyGroup; key += kKeyGroup) {
        _mm512_storeu_ps(out + key, _mm512_mul_ps(_mm512_loadu_ps(out + key), scale));
      }
    }
  });
}

void Values(const ValuesArgs& a) {
  if (a.type != KvType::kBF16Amx) return base::Values(a);
  ValuesOnTiles(a, ChunkRows{a.values, static_cast<size_t>(a.head_dim) * kBf16Bytes}, a.next);
}

void GatheredValues(const GatheredValuesArgs& a) {
  if (a.type != KvType::kBF16Amx) return base::GatheredValues(a);
  ValuesOnTiles(a, ScatteredRows{a.values}, {});
}

}  // namespace longspec::kernels::LONGSPEC_AMX_NAMESPACE
