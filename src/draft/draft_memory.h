// SPDX-License-Identifier: Apache-2.0
//
// The memory that drafting will take, known from the headers of files before weights are read.
#pragma once

#include <cstdint>

#include "attention/kv_span.h"
#include "formats/gguf.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "network/model_sizes.h"

namespace longspec {

// Of the host, on which drafts run, where not said otherwise.
struct DraftMemory {
  uint64_t fixed = 0;       // weights, activations and a window's cache, bytes
  uint64_t kv_chunk = 0;    // of each chunk of the context (kKvChunk positions), if the draft sees all of it
  uint64_t kept_chunk = 0;  // of each chunk that is kept of what it made of texts (draft_model/draft_keys.h)
  // Where the target's keys and values lie: what the target computes on for the draft, in bytes, and what it
  // takes besides for each chunk of the context.
  uint64_t with_target = 0, with_target_chunk = 0;

  DraftMemory& operator+=(const DraftMemory& other) {
    fixed += other.fixed;
    kv_chunk += other.kv_chunk;
    kept_chunk += other.kept_chunk;
    with_target += other.with_target;
    with_target_chunk += other.with_target_chunk;
    return *this;
  }
};

// What the header of a target's file says. Borrowed.
struct TargetFacts {
  const GgufFile& file;
  const ModelSizes& sizes;
  KvLayout cache;           // how its keys and values will lie
  bool is_on_card = false;  // they will lie where the host cannot address them
};

}  // namespace longspec
