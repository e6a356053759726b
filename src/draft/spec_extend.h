// SPDX-License-Identifier: Apache-2.0
//
// SpecExtend (arXiv 2505.20776; research: specextend.md 3) for any draft with a cache that grows: the cache,
// which shows the draft some chunks of the text, and when and by what they are chosen. That is the attention
// of the target's last layer from the last accepted token, every few verified rounds. What is an entry of
// the draft's cache, and when in a round the set may change, is the drafter's to say.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/draft_memory.h"
#include "draft/drafter.h"
#include "draft/registry.h"
#include "kv/reindexed_cache.h"
#include "model/rope.h"
#include "model/shared_parts.h"

namespace longspec {

class SpecExtend {
 public:
  // `options.spec_extend_chunks` is at least 1. `layout`, `n_layer` and `rope` are the draft's. `cache`: the
  // target's, borrowed, as CheckSpecExtend wants it.
  SpecExtend(const SpeculationOptions& options, const SharedParts& target, const KvCache& cache,
             const KvLayout& layout, int n_layer, const RopeConfig& rope);

  ReindexedCache& cache() { return *cache_; }
  const ReindexedCache& cache() const { return *cache_; }

  // What a draft asks for, and the queries of the rounds by which is chosen.
  Taps With(Taps taps) const;
  // Takes scores from every n-th round, the first one included.
  void Read(const CommittedRows& rows);
  // There are scores by which was not chosen yet.
  bool has_scores() const { return has_scores_; }
  // Chooses by them, if there are any. positions[i]: the target's position by which entry i of the cache is
  // scored; empty: entry i by position i. REQUIRES: no transaction of the cache is open.
  Status Choose(std::span<const int32_t> positions = {});
  // After a prompt: makes the set the last chunks, as many as are chosen.
  Status HoldLast() { return cache_->HoldLast(n_chunks_); }

  size_t bytes() const { return cache_->bytes() + (mass_.capacity() + scores_.capacity()) * sizeof(float); }

 private:
  const SharedParts target_;
  const KvCache& target_cache_;
  const int every_, n_chunks_;
  const std::unique_ptr<ReindexedCache> cache_;
  int64_t n_rounds_ = 0;
  std::vector<float> mass_;    // by position of the target
  std::vector<float> scores_;  // by entry
  bool has_scores_ = false;
};

// Null if the options ask for none. May throw std::bad_alloc.
std::unique_ptr<SpecExtend> MakeSpecExtend(const SpeculationOptions& options, const SharedParts& target,
                                           const KvCache& cache, const KvLayout& layout, int n_layer,
                                           const RopeConfig& rope);

// Whether this cache of a target has what is asked for: all positions.
Status CheckSpecExtend(const SpeculationOptions& options, const KvCache& cache);

// Adds the set, which passes of `max_rows` rows are appended to, and the store of all positions.
void AddSpecExtendMemory(const SpeculationOptions& options, const KvLayout& layout, int n_layer, int max_rows,
                         DraftMemory* plan);

inline constexpr DrafterOption kSpecExtendChunksOption = {
    .flags = "--spec-extend-chunks",
    .member = &SpeculationOptions::spec_extend_chunks,
    .help =
        "SpecExtend: it sees so many chunks of 32 positions, those the model looks at (paper: 32, EAGLE 64); "
        "0: all",
    .most = (1 << 24) / 32};
inline constexpr DrafterOption kSpecExtendEveryOption = {.flags = "--spec-extend-every",
                                                         .member = &SpeculationOptions::spec_extend_every,
                                                         .help = "rounds after which they are chosen anew",
                                                         .least = 1,
                                                         .most = 1 << 24};

}  // namespace longspec
