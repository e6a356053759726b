// SPDX-License-Identifier: Apache-2.0
#include "bench/loaded_model.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "engine/memory_plan.h"
#include "gpu/gpu_device.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

constexpr int kDeepest = 1 << 30;

// Null: the CPU.
Result<std::unique_ptr<Device>> CardFor(const ModelOptions& options, const kernels::KernelTable& kernels,
                                        int n_threads) {
  if (options.device == "cpu") return std::unique_ptr<Device>();
  LS_ASSIGN(auto device, MakeDevice(options.device, kernels.name, n_threads));
  if (!device->has_memory()) return std::unique_ptr<Device>();
  LS_TRY(CheckCardOffload(options));
  return device;
}

}  // namespace

std::unique_ptr<KvCache> LoadedModel::NewCache(int capacity) const {
  return MakeFullCache(target->NewPool(layout, spec.n_layer, offload), capacity);
}

Result<int> PositionsOf(const std::vector<int>& depths, int least_depth, int n_sequences) {
  int64_t deepest = 0;
  for (const int depth : depths) {
    if (depth < least_depth || depth > kDeepest) {
      return InvalidArgument("--depth " + std::to_string(depth) + ": must be from " +
                             std::to_string(least_depth) + " to " + std::to_string(kDeepest));
    }
    deepest = std::max<int64_t>(deepest, depth);
  }
  const int64_t chunks = (deepest + kKvChunk - 1) / kKvChunk + 1, positions = n_sequences * chunks * kKvChunk;
  if (positions <= std::numeric_limits<int>::max()) return static_cast<int>(positions);
  return InvalidArgument("--depth " + std::to_string(deepest) + ": " + std::to_string(n_sequences) +
                         " sequences of it have too many positions");
}

Result<LoadedModel> LoadForBench(const ModelOptions& options, const kernels::KernelTable* kernels,
                                 int max_rows, int ctx_size, std::shared_ptr<const GgufFile> file) {
  LoadedModel model;
  model.kernels = kernels;
  if (kernels == nullptr) {
    LS_ASSIGN(model.kernels, kernels::Choose(options.kernels));
  }
  model.file = std::move(file);
  if (model.file == nullptr) {
    LS_ASSIGN(model.file, GgufFile::Open(options.path));
  }
  LS_ASSIGN(model.spec, ReadModelSpec(*model.file, options.rope, options.bf16_weights, options.attention));
  model.layout = model.spec.kv_layout(options.cache_type_k, options.cache_type_v);
  if (Status status = CheckLayout(model.layout); !status.ok()) {
    return Status(status.code(), options.path + ": " + status.message());
  }
  const int n_threads = options.threads > 0 ? options.threads : ThreadTeam::UsableCores();
  LS_ASSIGN(model.card, CardFor(options, *model.kernels, n_threads));
  if (model.card != nullptr) LS_TRY(model.card->Check(model.spec, model.layout));
  const ModelMemory memory = model.card != nullptr
                                 ? model.card->Plan(model.spec, *model.file, max_rows)
                                 : PlanModelMemory(model.spec, *model.file, max_rows, n_threads);
  MemoryNeeds needs = NeedsOf(memory, model.spec, model.layout, ctx_size);
  const bool on_card = model.card != nullptr;
  const uint64_t of_host = AvailableMemory(), available = on_card ? model.card->FreeMemory() : of_host;
  model.offload = PlanOffload(options, on_card, available, model.spec.n_layer, &needs);
  LS_TRY(CheckMemory(options.path, needs, available, /*by_option=*/false, of_host));
  LS_TRY(CheckOffload(OffloadFolder(options), PlanMemory(needs, available, of_host)));
  LS_ASSIGN(model.team, ThreadTeam::Start(n_threads));
  ModelLoadOptions load;
  load.max_rows = max_rows;
  load.on_progress = options.on_progress;
  load.weights_cache = {.folder = options.weights_cache, .on_warning = options.on_warning};
  if (model.card != nullptr) {
    LS_ASSIGN(model.target, model.card->Load(model.file, model.spec, load));
  } else {
    LS_ASSIGN(model.target, LoadModel(model.file, model.spec, {model.kernels, model.team.get()}, load));
  }
  return model;
}

}  // namespace longspec
