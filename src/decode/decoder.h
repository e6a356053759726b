// SPDX-License-Identifier: Apache-2.0
//
// Decoding one sequence: rounds of a batch of one (decode/batch_decoder.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "decode/batch_decoder.h"
#include "decode/policy.h"
#include "decode/stats.h"
#include "draft/drafter.h"
#include "kv/kv_cache.h"
#include "model/target.h"
#include "sampling/sampler.h"
#include "verify/verify.h"

namespace longspec {

struct DecoderParts {
  Target* target = nullptr;          // borrowed, must outlive the decoder
  KvCache* cache = nullptr;          // borrowed
  Drafter* drafter = nullptr;        // borrowed
  Policy* policy = nullptr;          // borrowed
  const Sampler* sampler = nullptr;  // borrowed
  int prefill_chunk = 512;
  bool dice = true;                  // the drafter may use the sampler's random numbers
  Constraint* constraint = nullptr;  // borrowed: what the answer may be; null: any text
};

// What one round committed. Views are valid until the next call.
struct StepResult {
  std::span<const int32_t> tokens;  // newly committed, in order; at least one
  const float* logits = nullptr;    // (n_rows, vocab): row path[i] is what tokens[i] was drawn from
  std::span<const int32_t> path;    // (tokens.size()) row of each committed token
  int vocab = 0;
};

class Decoder {
 public:
  // `committed` (borrowed) is the sequence: the caller fills it with the prompt before Prefill, and each
  // round appends to it. The cache may already hold a prefix of it.
  Decoder(const DecoderParts& parts, std::vector<int32_t>* committed);

  // Computes keys and values for all committed tokens but the last (the root of the first round), in chunks.
  // `on_progress(done, total)` returning false cancels.
  Status Prefill(const std::function<bool(int, int)>& on_progress = {});

  // One round. `max_tokens` bounds how many tokens may be committed (at least 1); `is_end(token)` marks a
  // token after which nothing more is committed. Afterwards the cache holds all committed tokens but the
  // last. kResourceExhausted: the context is full. On an error nothing has changed. A drafter that fails is
  // not asked again: draft_failure() says why. REQUIRES: Prefill succeeded, or a round did.
  Result<StepResult> Step(int max_tokens, const std::function<bool(int32_t)>& is_end);

  const DecodeStats& stats() const { return sequence_.stats; }
  const std::string& draft_failure() const { return sequence_.draft_failure; }

 private:
  const int prefill_chunk_;
  Sequence sequence_;
  BatchDecoder rounds_;
};

}  // namespace longspec
