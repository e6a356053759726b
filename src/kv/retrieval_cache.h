// SPDX-License-Identifier: Apache-2.0
//
// A working set that chooses what to see (SpecPV, arXiv 2512.02337; TriForce, arXiv 2404.11912): the first
// `sink` positions; `budget` positions in blocks of 16, for each layer and KV head those that the last query
// scores highest (of several rows' queries: what their scores are reduced to); and all positions from some
// point before the end on, which grow until the next choice. Keys keep the rotation of their original
// positions, so a choice is a copy of bytes.
//
// Slots: [0, sink) the sink, [sink, sink + budget) the chosen blocks in ascending order, then the recent
// positions one by one. As long as everything fits, slots are positions and attention is that of the full
// cache, bit for bit. What is chosen depends on the source's positions and the last queries only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kv/block_summaries.h"
#include "kv/chunk_pool.h"
#include "kv/working_set.h"

namespace longspec {

struct RetrievalOptions {
  int sink = 32;      // positions; a multiple of 16
  int budget = 2048;  // positions, rounded down to whole blocks; 0: sink and recent positions alone
  int window = 128;   // recent positions right after a choice, at least
  int refresh = 64;   // positions after which blocks are chosen anew
  BlockScore score = BlockScore::kMinMax;
  QueryReduction reduce = QueryReduction::kMean;
};

// What a working set takes, known before there is one, in bytes.
struct WorkingSetMemory {
  uint64_t fixed = 0;
  uint64_t source_chunk = 0;  // for each kKvChunk positions of its source, besides
};

// What a cache has done so far, of all layers and KV heads where not said otherwise.
struct RetrievalWork {
  int64_t choices = 0;
  int64_t positions_copied = 0;   // recent ones, each once whatever the layers
  int64_t blocks_copied = 0;      // chosen ones, of one KV head each
  int64_t blocks_summarised = 0;  // each once whatever the layers
};

class RetrievalCache : public WorkingSet {
 public:
  // Chooses now, from all of `source`, whatever was held: recent positions begin at `recent_begin`. Nothing
  // is chosen, and everything is recent, if less than sink and budget lies before it.
  virtual Status Choose(const KvCache& source, int recent_begin) = 0;

  virtual int recent_begin() const = 0;
  virtual RetrievalWork work() const = 0;
  // The blocks that were chosen for one layer and KV head, ascending. Empty: everything is held.
  virtual std::span<const int32_t> blocks(int layer, int kv_head) const = 0;
};

// What a set takes that is chosen by the queries of `n_query_rows`, and to which rows of its own are
// appended, at most `most_rows` at a time.
WorkingSetMemory PlanRetrievalCache(const KvLayout& layout, int n_layer, int n_head,
                                    const RetrievalOptions& options, int most_rows, int n_query_rows = 1);

// `pool`: a place of its own, laid out as its source. `n_head`: query heads of the target.
std::unique_ptr<RetrievalCache> MakeRetrievalCache(std::shared_ptr<ChunkPool> pool, int n_head,
                                                   const RetrievalOptions& options);

}  // namespace longspec
