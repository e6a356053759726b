// SPDX-License-Identifier: Apache-2.0
//
// Many generations at once: submit them, then run rounds until nothing is left. Each gets the bits it would
// get alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec {

class Grammar;  // a compiled one, of Engine::PrepareGrammar

// What one round was.
struct RoundReport {
  int rows = 0;             // of the pass: missing tokens of prompts, roots and guesses
  int sequences = 0;        // in it
  int tokens = 0;           // generated
  double predicted_ms = 0;  // of the forward pass, by the costs known before
  double pass_ms = 0;       // what it took
  double round_ms = 0;      // with drafting, verification and commits
};

struct SchedulerOptions {
  int parallel = 0;  // sequences at once; 0: as many as memory holds, 64 at most
  // For keys and values, what is kept of earlier prompts included; 0: those of one context and of the planned
  // prompt cache.
  uint64_t cache_bytes = 0;
  double prefill_ms = 25;  // that prompts may add to a round in which answers are written
  bool share_prefixes = true;
  std::function<void(const RoundReport&)> on_round = {};  // called after each forward pass
  // Called where nothing can run for memory that sessions hold. True: some of them will be let go of, and the
  // next round tries again; else the oldest request fails.
  std::function<bool()> waits_for_sessions = {};
};

// A request given to the scheduler. on_end is called once for each of the answers, from inside RunRound (or
// Cancel).
struct Submission {
  std::shared_ptr<const GenerationRequest> request;  // not copied: all answers read this one
  int n = 1;                                         // answers to a prompt
  // Several prompts, in tokens, in place of the request's own: answer i * n + j is the j-th to prompts[i],
  // and says what it would say if that were the request's. All are taken or none is. Null: the request's.
  std::shared_ptr<const std::vector<std::vector<int32_t>>> prompts = {};
  std::shared_ptr<const Grammar> grammar = {};  // the request's; null: it is looked up or compiled
  // What is special to one of the answers, such as callbacks that know its index. Called when it starts.
  std::function<void(int index, OneAnswer& own)> for_answer = {};
  std::function<void(int index, Result<GenerationResult>)> on_end;
};

struct SchedulerStats {
  int64_t rounds = 0, tokens = 0;  // tokens: generated
  int64_t prompt_tokens = 0,
          prompt_tokens_known = 0;  // of those that started; known: evaluated before by others
  int64_t preemptions = 0;          // sequences that gave way and computed their keys again
  int running = 0, waiting = 0;     // sequences after the last round
  // Chunks of keys and values: held by sequences, sessions and known prefixes; of them, those that only known
  // prefixes hold; and as many as there may be.
  size_t chunks_held = 0, chunks_reclaimable = 0, chunks_most = 0;
};

class Scheduler {  // Submit, Cancel: any thread; RunRound: one thread
 public:
  virtual ~Scheduler() = default;
  virtual Result<int64_t> Submit(
      Submission submission) = 0;  // refused at once, with numbers, if it can never fit
  virtual void Cancel(int64_t id) = 0;
  virtual Result<bool> RunRound() = 0;                 // one forward pass; false: nothing to do
  virtual SchedulerStats stats() const { return {}; }  // by whoever runs rounds
};

}  // namespace longspec
