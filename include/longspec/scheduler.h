// SPDX-License-Identifier: Apache-2.0
//
// Many generations at once: submit them, then run rounds until nothing is left. Each gets the bits it would
// get alone.
#pragma once

#include <cstdint>
#include <functional>

#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec {

struct SchedulerOptions {
  int parallel = 0;          // sequences at once; 0: as many as memory holds, 64 at most
  uint64_t cache_bytes = 0;  // for keys and values; 0: the planned KV memory
  double prefill_ms = 100;   // that prompts may add to a round in which answers are written
  bool share_prefixes = true;
};

// A request given to the scheduler. on_end is called once for each of the n answers, from inside RunRound (or
// Cancel).
struct Submission {
  GenerationRequest request;
  int n = 1;
  std::function<void(int index, Result<GenerationResult>)> on_end;
};

struct SchedulerStats {
  int64_t rounds = 0, tokens = 0;  // tokens: generated
  int64_t prompt_tokens = 0,
          prompt_tokens_known = 0;  // of those that started; known: evaluated before by others
  int64_t preemptions = 0;          // sequences that gave way and computed their keys again
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
