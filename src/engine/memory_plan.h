// SPDX-License-Identifier: Apache-2.0
//
// The memory a model will take, known before any of it is taken, and the refusal when the system cannot give
// it. Free functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "draft/drafter_entry.h"
#include "draft_model/draft_keys.h"
#include "kv/chunk_pool.h"
#include "kv/retrieval_cache.h"
#include "longspec/engine.h"
#include "longspec/status.h"
#include "model/transformer.h"

namespace longspec {

struct MemoryNeeds {
  uint64_t weights = 0;
  uint64_t scratch = 0;
  uint64_t kv_chunk = 0;  // bytes of one chunk of kv_chunk_positions positions
  DraftMemory draft;
  bool draft_on_host = false;  // the model lies on a card, its draft does not
  bool rest_on_host = false;   // nor does what most_kv leaves out: it lies in host memory, not in a file
  WorkingSetMemory working_set;
  std::optional<uint64_t> most_kv;  // bytes of the cache in memory, whole chunks; nothing: all of it
  uint64_t most_prompt_cache = 0;   // bytes that may be kept of earlier prompts, if memory has room for them
  int kv_chunk_positions = 256;
  int ctx_size = 0;

  // What a chunk takes that is kept of an earlier prompt: a draft model keeps what it made of these
  // positions.
  uint64_t kept_chunk() const { return kv_chunk + draft.kept_chunk; }
  // What a draft model keeps even if nothing is kept of prompts.
  uint64_t draft_keys() const { return DraftKeys::kFewChunks * draft.kept_chunk; }
};

// ModelOptions::cache_ram in bytes.
uint64_t MostPromptCache(int cache_ram);

// What one loaded model needs, which itself takes `model`, with one sequence of ctx_size positions.
MemoryNeeds NeedsOf(const ModelMemory& model, const ModelSpec& spec, const KvLayout& layout, int ctx_size,
                    const DraftMemory& draft = {}, const WorkingSetMemory& working_set = {});

// `available`: bytes that the system, or the card on which the model is to lie, could give; `on_host`: bytes
// that the system could give to what of a model on a card lies in host memory. 0 if unknown.
MemoryPlan PlanMemory(const MemoryNeeds& needs, uint64_t available, uint64_t on_host = 0);

// All that is to lie in the host's memory beside a card.
uint64_t HostTotal(const MemoryPlan& plan);

// The largest context, at most the asked one, whose plan fits; 0 if none does.
int LargestContextThatFits(const MemoryNeeds& needs, uint64_t available, uint64_t on_host = 0);

// kResourceExhausted, with the numbers and the context that would fit, if the plan exceeds what is available.
// `by_option`: -c chooses the context.
Status CheckMemory(const std::string& path, const MemoryNeeds& needs, uint64_t available,
                   bool by_option = true, uint64_t on_host = 0);

// What this process may still take: the least of MemAvailable, the limits of its control groups (v1 and v2;
// page cache counts as free) and its address-space limit. 0 if none of them can be read. `root` replaces "/"
// in tests.
uint64_t AvailableMemory(const std::string& root = "");

// ModelOptions::kv_offload: not in a file but, of a card's cache, in host memory.
inline constexpr char kOffloadToHost[] = "host";
// The folder of a file. Empty: there is none.
std::string OffloadFolder(const ModelOptions& options);
// kUnsupported: a card's cache cannot lie there.
Status CheckCardOffload(const ModelOptions& options);

// How much of the cache lies in memory with these options, in chunks of `kv_chunk` bytes.
KvOffload OffloadOf(const ModelOptions& options, uint64_t kv_chunk, uint64_t available);
// The same of a model of so many layers, and what the needs say of it. With a card, whose memory `available`
// is, the rest may lie in host memory: then there is room on the card for what is fetched of it ahead.
KvOffload PlanOffload(const ModelOptions& options, bool on_card, uint64_t available, int n_layer,
                      MemoryNeeds* needs);
// kResourceExhausted, with the numbers, if the folder's disk has no room for what the plan wants there.
Status CheckOffload(const std::string& folder, const MemoryPlan& plan);

// "117.2 MiB", for people.
std::string FormatBytes(uint64_t bytes);

}  // namespace longspec
