// SPDX-License-Identifier: Apache-2.0
//
// One generation: from prompt tokens to text, over parts that outlive it. The session keeps its tokens, their
// cache and the drafter that follows them; everything else (policy, sampler) lives as long as the generation.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "decode/batch_decoder.h"
#include "draft/drafter.h"
#include "grammar/grammar.h"
#include "kv/full_cache.h"
#include "kv/prompt_cache.h"
#include "longspec/engine.h"
#include "model/target.h"
#include "policy/policy.h"
#include "tokenizer/tokenizer.h"

namespace longspec {

// Most nodes a drafter may propose per step; the target is made for one more row.
inline constexpr int kMaxDraftNodes = 255;

// Borrowed; outlives the generation.
struct KnownCosts {
  AdaptiveMemory* memory = nullptr;
  std::string origin;  // in words, for statistics
};

struct GenerationParts {
  Target* target = nullptr;              // borrowed
  const Tokenizer* tokenizer = nullptr;  // borrowed
  int prefill_chunk = 512;
  int max_rows = 512;                   // of one pass of the target
  int n_ctx_train = 0;                  // for messages only
  DraftModels* draft_models = nullptr;  // borrowed; null: draft models are loaded for one generation only
  // For the adaptive policy: what is known of this machine and of its drafters. Null: nothing before this
  // generation, and nothing after.
  std::function<KnownCosts()> known_costs = {};
  // Compiles what an answer must be; compiled ones are known for as long as somebody holds them. Null: such
  // requests are refused. Any thread.
  std::function<Result<std::shared_ptr<const Grammar>>(const GrammarText&)> grammar = {};
  // Sees a beginning that was found before it is taken over, and may leave out its end where memory is short.
  // May be empty.
  std::function<void(PrefixIndex::Match&)> on_match = {};
  // For checks: sees what came of each turn before the answer takes it. May be empty.
  std::function<void(const Turn&)> on_turn = {};
  PromptCache* prompts = nullptr;  // borrowed: what was evaluated before; null: nothing is known of it
};

// What a session is: the cache holds keys and values of a prefix of the tokens.
struct SessionState {
  std::vector<int32_t> tokens;
  std::unique_ptr<FullCache> cache;
  std::unique_ptr<Drafter> drafter;                           // of the last answer; null: none yet
  std::shared_ptr<const SpeculationOptions> drafter_options;  // it was made with
  const KvCache* drafter_cache = nullptr;
  // A session that comes from a file has these for its first drafter, and a notice of those that were lost.
  std::vector<DrafterSnapshot> snapshots;
  std::string draft_notice;

  void Clear();
  // Keeps the first `n` tokens. The last one kept is never in the cache: it is the root of the next round.
  void KeepTokens(size_t n);
};

// Continues `prompt`: evaluates what the session does not already hold, and leaves the rounds to Step.
// Whatever the outcome, the session is consistent afterwards: after success it holds prompt and answer, after
// failure or a cancelled prefill what the cache holds.
Result<std::unique_ptr<Generation>> StartGeneration(const GenerationParts& parts, SessionState& session,
                                                    const std::vector<int32_t>& prompt,
                                                    std::shared_ptr<const GenerationRequest> request);
// The error of an answer for which there is not enough memory.
Status OutOfMemory(const SessionState& session);

// The same, and runs its rounds until it has ended.
Result<GenerationResult> RunGeneration(const GenerationParts& parts, SessionState& session,
                                       const std::vector<int32_t>& prompt, const GenerationRequest& request);

}  // namespace longspec
