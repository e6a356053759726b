// SPDX-License-Identifier: Apache-2.0
//
// A model loaded below the facade, where kernels, threads and rows can be chosen one by one: what measuring
// and self-checking need.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_team.h"
#include "formats/gguf.h"
#include "kernels/ops.h"
#include "kv/chunk_pool.h"
#include "kv/kv_cache.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "model/device.h"
#include "model/target.h"
#include "model/transformer.h"

namespace longspec {

struct LoadedModel {
  std::shared_ptr<const GgufFile> file;
  ModelSpec spec;
  KvLayout layout;
  KvOffload offload;
  const kernels::KernelTable* kernels = nullptr;
  // Declared before target, which uses them.
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Device> card;  // null: it runs on the CPU
  std::unique_ptr<Target> target;

  std::unique_ptr<KvCache> NewCache(int capacity) const;
};

// Positions that so many sequences of the largest depth take, whole chunks each and one for what is measured.
// kInvalidArgument, by the name of the option, if a depth is out of range or all of them are too many.
Result<int> PositionsOf(const std::vector<int>& depths, int least_depth, int n_sequences);

// Where options.device says. `kernels` null: what options.kernels, the environment or the CPU say.
// `max_rows`: most rows of one forward pass. `file`: the model's; null: it is opened. Refused, with the
// numbers, if the model and a cache of `ctx_size` positions cannot fit into memory.
Result<LoadedModel> LoadForBench(const ModelOptions& options, const kernels::KernelTable* kernels,
                                 int max_rows, int ctx_size, std::shared_ptr<const GgufFile> file = nullptr);

}  // namespace longspec
