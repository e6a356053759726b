// SPDX-License-Identifier: Apache-2.0
//
// A model that is layers of attention and MLP (network/model_spec.h): memory before loading, and the loaded
// model as a Target.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "formats/gguf.h"
#include "longspec/status.h"
#include "model/lane.h"
#include "model/target.h"
#include "network/model_spec.h"

namespace longspec {

struct ModelMemory {
  uint64_t weights = 0;  // repacked, bytes
  uint64_t scratch = 0;  // activations for `max_rows` rows, their attention, logits of the largest tree
};
ModelMemory PlanModelMemory(const ModelSpec& spec, const GgufFile& file, int max_rows, int n_threads = 1);

// Where packed weights are kept on disk (model/weights_cache.h).
struct WeightsCacheOptions {
  std::string folder;  // empty: nowhere
  std::function<void(const std::string&)>
      on_warning;  // one line for what could not be read or kept; may be empty
};

struct ModelLoadOptions {
  int max_rows = 512;                       // most rows of one Forward
  std::function<bool(double)> on_progress;  // share done; false cancels
  WeightsCacheOptions weights_cache;
  std::string* origin = nullptr;  // set to where the packed weights came from: "packed now", "read from FILE"
};

// Repacks the weights, or maps them as they were packed before. REQUIRES: spec came from this file. `lane`
// outlives the model.
Result<std::unique_ptr<Target>> LoadModel(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                          const CpuLane& lane, const ModelLoadOptions& options = {});

}  // namespace longspec
