// SPDX-License-Identifier: Apache-2.0
//
// One sequence, alone in its rounds: its prompt, and then a round at a time. For tests of what takes part in
// rounds; answers are driven by the scheduler (engine/scheduler.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "decode/batch_decoder.h"
#include "decode/owned_sequence.h"
#include "sampling/testing/values_of.h"

namespace longspec::testing {

class OneSequence {
 public:
  // What a round committed. Views are valid until the next one.
  struct Round {
    std::span<const int32_t> tokens;
    LogitRows logits;  // row path[i] is what tokens[i] was drawn from
    std::span<const int32_t> path;

    std::span<const float> Row(size_t i) const { return testing::ValuesOf(logits[path[i]]); }
  };

  // Target, cache and drafter are borrowed.
  OneSequence(Target* target, std::vector<int32_t> text, KvCache* cache, Drafter* drafter,
              std::unique_ptr<Policy> policy, Sampler sampler, int prefill_chunk = 512)
      : own_(std::move(text), cache, drafter, std::move(policy), std::move(sampler)),
        prefill_chunk_(prefill_chunk),
        rounds_(target) {}

  // All tokens but the last, which is computed again if the cache has seen it.
  Status Prefill() {
    KvCache& cache = *sequence_.cache;
    const auto n_tokens = static_cast<int>(sequence_.tokens->size());
    if (cache.length() > n_tokens - 1) cache.Truncate(n_tokens - 1);
    sequence_.Follow();
    while (sequence_.n_missing() > 1) {
      LS_TRY(Run({.sequence = &sequence_, .max_rows = sequence_.NextRows(prefill_chunk_)}).status());
    }
    return {};
  }

  Result<Round> Step(int max_tokens, const std::function<bool(int32_t)>& is_end = {}) {
    return Run({.sequence = &sequence_, .max_tokens = max_tokens, .is_end = &is_end});
  }

  const std::vector<int32_t>& tokens() const { return own_.tokens; }
  void ForbidDice() { sequence_.dice = false; }
  const DecodeStats& stats() const { return sequence_.stats; }
  const std::string& draft_failure() const { return sequence_.draft_failure; }

 private:
  Result<Round> Run(Turn turn) {
    LS_TRY(rounds_.Run({&turn, 1}));
    LS_TRY(turn.status);
    return Round{.tokens = turn.tokens, .logits = turn.logits, .path = turn.path};
  }

  OwnedSequence own_;
  Sequence& sequence_ = own_.sequence;
  const int prefill_chunk_;
  BatchDecoder rounds_;
};

}  // namespace longspec::testing
