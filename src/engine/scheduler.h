// SPDX-License-Identifier: Apache-2.0
//
// Many answers at once over one target (longspec/scheduler.h). What each round does is decided by PlanRound
// (engine/round_plan.h); here is who holds what. A sequence that must give way drops its keys and computes
// them again later, which changes no bit of what it says.
#pragma once

#include <functional>
#include <memory>

#include "engine/answer.h"
#include "engine/generation.h"
#include "kv/chunk_pool.h"
#include "longspec/scheduler.h"

namespace longspec {

struct SchedulerParts {
  GenerationParts generation;       // prefill_chunk is the most rows of a pass
  std::shared_ptr<ChunkPool> pool;  // of all sequences of the engine
  int ctx_size = 0;                 // of one sequence
  // Prompt tokens of a request, or what is wrong with it. Called by whoever submits.
  std::function<Result<std::vector<int32_t>>(const GenerationRequest&)> tokenize;
};

// `planned_bytes`: for keys and values, where the options do not say.
Result<std::unique_ptr<Scheduler>> MakeScheduler(SchedulerParts parts, const SchedulerOptions& options,
                                                 uint64_t planned_bytes);

// Runs rounds of answers that others hold, too: of guests, for whom memory has room as long as there is any.
class HostScheduler : public Scheduler {
 public:
  // The answer takes part in rounds until it has ended, failed or left; it has started, and all but the last
  // token of its prompt is evaluated before a round decodes. All borrowed. `on_failure` is called from inside
  // RunRound: the answer has not ended then, and is a guest no longer.
  virtual void Join(SessionState& session, AnswerInProgress& answer,
                    std::function<void(const Status&)> on_failure) = 0;
  // What the answer has evaluated stays known. Does nothing if the answer is no guest.
  virtual void Leave(const AnswerInProgress& answer) = 0;
};

// For one guest. Its passes have as many rows as the target allows, however long they take.
std::unique_ptr<HostScheduler> MakeSchedulerOfOne(const GenerationParts& parts, int ctx_size);

}  // namespace longspec
