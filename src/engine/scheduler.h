// SPDX-License-Identifier: Apache-2.0
//
// Many answers at once over one target (longspec/scheduler.h). What each round does is decided by PlanRound
// (engine/round_plan.h); here is who holds what. A sequence that must give way drops its keys and computes
// them again later, which changes no bit of what it says.
#pragma once

#include <functional>
#include <memory>

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

}  // namespace longspec
