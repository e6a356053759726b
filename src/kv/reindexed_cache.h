// SPDX-License-Identifier: Apache-2.0
//
// SpecExtend's cache of a draft (arXiv 2505.20776; research: specextend.md 3): every position is kept in a
// store without rotation, and the draft sees a working set of some chunks of it, rotated to the positions
// they have in the set. So a draft that knows short texts only reads long ones. Which chunks are in the set
// is said by the attention of the target: scores of all positions come from outside. The newest chunk is
// always there.
//
// length() counts all positions; rows are computed at position n_slots() of the set. Rows that are committed
// enter set and store with what they saw.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kv/kv_cache.h"

namespace longspec {

// How keys are rotated. row: fills (n_rot / 2, 2) cosines and sines of a position, a factor included.
struct Rotary {
  const kernels::KernelTable* kernels = nullptr;
  kernels::RopePairing pairing = kernels::RopePairing::kAdjacent;
  int n_rot = 0;
  double magnitude = 1.0;  // that factor
  std::function<void(int position, float* cos_sin)> row;
};

struct ReindexOptions {
  int chunk = 32;     // positions
  int n_chunks = 32;  // of the set
  // Of a prompt, rows see so many positions back, at least (the released code: 512; research: 4.1).
  int prefill_window = 512;
  int prompt_rows = 257;  // passes of as many rows are a prompt's: trees have fewer
};

class ReindexedCache : public KvCache {
 public:
  // Chooses the chunks of the highest mean score, of equal ones the earlier, and the newest. `scores`: of the
  // first positions; those beyond count as 0. REQUIRES: no transaction is open.
  virtual Status Choose(std::span<const float> scores) = 0;

  // Makes the set the last `n_chunks` chunks, as after a prompt of which nothing was scored. REQUIRES: no
  // transaction is open.
  virtual Status HoldLast(int n_chunks) = 0;

  // Makes a set that is larger the last positions that a prompt's rows see at least, before a piece of a
  // prompt that may be as short as a tree. REQUIRES: no transaction is open.
  virtual Status HoldPromptWindow() = 0;

  // All: from now on every position is seen, where it is, as without a choice: nothing is chosen, and a
  // prompt's rows see all before them. Not all: the set is the last chunks, until the next choice. REQUIRES:
  // no transaction is open.
  virtual Status SeeAll(bool all) = 0;

  // The chunks of the set, ascending.
  virtual std::span<const int32_t> chunks() const = 0;
};

std::unique_ptr<ReindexedCache> MakeReindexedCache(const KvLayout& layout, int n_layer, Rotary rotary,
                                                   const ReindexOptions& options);

}  // namespace longspec
