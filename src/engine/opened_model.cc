// SPDX-License-Identifier: Apache-2.0
#include "engine/opened_model.h"

#include <cstdint>

#include "attention/attention_kind.h"
#include "base/status_macros.h"
#include "draft_model/registry.h"
#include "engine/model_facts.h"
#include "engine/offload_cost.h"
#include "engine/partial_retrieval.h"
#include "gpu/gpu_device.h"

namespace longspec {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxBatch = 65536;

Status CheckOptions(const ModelOptions& options) {
  if (options.path.empty()) return InvalidArgument("no model file given");
  if (options.ctx_size < 0) {
    return InvalidArgument("context size " + std::to_string(options.ctx_size) +
                           ": must be 0 (from the model) or more");
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgument("threads " + std::to_string(options.threads) +
                           ": must be from 0 (one per core) to " + std::to_string(kMaxThreads));
  }
  if (options.batch_size < 1 || options.batch_size > kMaxBatch) {
    return InvalidArgument("batch size " + std::to_string(options.batch_size) + ": must be from 1 to " +
                           std::to_string(kMaxBatch));
  }
  if (FindAttention(options.attention) == nullptr)
    return Unsupported("this program has no attention of this kind: it is for measuring beside");
  return {};
}

Status CheckDevice(const Device& device, const ModelSpec& spec, const KvLayout& layout,
                   const ModelOptions& options) {
  if (device.has_memory()) LS_TRY(CheckCardOffload(options));
  if (Status status = device.Check(spec, layout); !status.ok())
    return Status(status.code(), options.path + ": " + status.message());
  return {};
}

Result<OpenedModel> OpenModelOn(const std::string& device, const ModelOptions& options, ModelFiles& files) {
  OpenedModel model;
  LS_ASSIGN(model.device, MakeDevice(device, options.kernels, options.threads));
  LS_ASSIGN(model.file, files.Target(options.path));
  LS_TRY(CheckStandsAlone(*model.file));
  LS_ASSIGN(model.spec, ReadModelSpec(*model.file, options.rope, options.bf16_weights, options.attention));
  const ModelSpec& spec = model.spec;
  const KvLayout layout = spec.kv_layout(options.cache_type_k, options.cache_type_v);
  if (Status status = CheckLayout(layout); !status.ok()) {
    return Status(status.code(), options.path + ": " + status.message());
  }
  LS_TRY(CheckDevice(*model.device, spec, layout, options));

  ModelInfo& info = model.info;
  DescribeFile(*model.file, options, &info);
  DescribeNetwork(spec, &info);
  DescribeDevice(model.device->facts(), &info);
  DescribeOperations(spec, *model.file, options, &info);
  info.n_ctx = options.ctx_size > 0 ? options.ctx_size : spec.n_ctx_train;

  const bool on_card = model.device->has_memory();
  const TargetFacts facts = {.file = *model.file, .sizes = spec, .cache = layout, .is_on_card = on_card};
  LS_ASSIGN(const DraftMemory draft, PlanDraftMemory(options.speculation, facts, files.drafts));
  model.draft_files = files.drafts;
  const SpeculationOptions speculation = Settled(options.speculation);
  const int most_drafted = std::max(speculation.draft_n_max, speculation.adaptive_n_max);
  LS_ASSIGN(
      const WorkingSetMemory working_set,
      PlanPartialRetrieval(options.partial_verification, layout, spec.n_layer, spec.n_head, most_drafted));
  const ModelMemory memory = model.device->Plan(spec, *model.file, MaxRows(options));
  model.needs = NeedsOf(memory, spec, layout, info.n_ctx, draft, working_set);
  model.needs.draft_on_host = on_card;
  if (options.cache_prompt) model.needs.most_prompt_cache = MostPromptCache(options.cache_ram);
  const uint64_t of_host = AvailableMemory(), available = on_card ? model.device->FreeMemory() : of_host;
  model.offload = PlanOffload(options, on_card, available, spec.n_layer, &model.needs);
  info.memory = PlanMemory(model.needs, available, of_host);
  model.layout = layout;
  model.speeds = MeasureOffload(OffloadFolder(options), &info.memory);
  return model;
}

}  // namespace

Result<std::shared_ptr<const GgufFile>> ModelFiles::Target(const std::string& path) {
  if (target != nullptr) return target;
  auto file = GgufFile::Open(path);
  if (file.status().code() == StatusCode::kInvalidArgument) return IoError(file.status().message());
  if (file.ok()) target = *file;
  return file;
}

Result<OpenedModel> OpenModel(const ModelOptions& options, ModelFiles& files) {
  LS_TRY(CheckOptions(options));
  if (options.device != "auto") return OpenModelOn(options.device, options, files);
  auto on_device = OpenModelOn("auto", options, files);
  // What the card does not have, or has no room for, the CPU may.
  if (on_device.ok() ? !on_device->device->has_memory() || CheckRoom(*on_device, options).ok()
                     : on_device.status().code() != StatusCode::kUnsupported) {
    return on_device;
  }
  return OpenModelOn("cpu", options, files);
}

Status CheckRoom(const OpenedModel& model, const ModelOptions& options) {
  const MemoryPlan& plan = model.info.memory;
  LS_TRY(CheckMemory(options.path, model.needs, plan.available, /*by_option=*/true, plan.host_available));
  LS_TRY(CheckOffload(OffloadFolder(options), plan));
  if (options.kv_offload_anyway) return {};
  const uint64_t as_q8 = KvBytesAsQ8(model.layout, model.spec.n_layer, model.info.memory);
  return CheckOffloadPays(OffloadFolder(options), model.info.memory, as_q8, model.speeds);
}

Result<ModelInfo> InspectModel(const ModelOptions& options, ModelFiles& files) {
  const auto model = OpenModel(options, files);
  if (model.ok()) return model->info;
  if (model.status().code() != StatusCode::kUnsupported) return model.status();
  LS_ASSIGN(const std::shared_ptr<const GgufFile> opened, files.Target(options.path));
  const GgufFile& file = *opened;
  LS_TRY(CheckStandsAlone(file));
  const Status network = ReadModelSpec(file, options.rope, options.bf16_weights, options.attention).status();
  if (network.ok()) return model.status();  // something else is not supported
  ModelInfo info;
  DescribeFile(file, options, &info);
  DescribeOtherNetwork(file, network, &info);
  return info;
}

}  // namespace longspec
