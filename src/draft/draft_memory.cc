// SPDX-License-Identifier: Apache-2.0
#include "draft/draft_memory.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/status_macros.h"
#include "draft/draft_models.h"
#include "draft/drafter.h"
#include "draft/lm_model.h"
#include "draft/longspec_checkpoint.h"
#include "draft/longspec_model.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

Result<DraftMemory> OfLanguageModel(const SpeculationOptions& speculation, const KvLayout& target_layout) {
  LS_ASSIGN(const auto file, GgufFile::Open(speculation.draft_model));
  LS_ASSIGN(const LlamaConfig config, ReadLlamaConfig(*file, {}));
  const LlamaMemory memory = PlanLlamaMemory(config, *file, kLmMaxRows);
  const uint64_t chunk = KvChunkBytes(LmCacheLayout(config, target_layout), config.n_layer);
  DraftMemory plan = {.fixed = memory.weights + memory.scratch};
  if (speculation.draft_window > 0) {
    const int positions = speculation.draft_sink + speculation.draft_window;
    plan.fixed += static_cast<uint64_t>(positions / kKvChunk + 1) * chunk;
  } else {
    plan.kv_chunk = chunk;
  }
  return plan;
}

Result<DraftMemory> OfLongspec(const SpeculationOptions& speculation, const LlamaConfig& target,
                               const GgufFile& target_file) {
  LS_TRY(CheckLongspecWeights(speculation.draft_weights));
  LS_ASSIGN(const LongspecCheckpoint checkpoint, OpenLongspecCheckpoint(speculation.draft_model));
  LS_TRY(CheckLongspecFit(checkpoint, target));
  const TensorView* head =
      target_file.FindTensor(target.tied_embeddings ? "token_embd.weight" : "output.weight");
  return DraftMemory{.fixed = LongspecModelBytes(checkpoint, speculation.draft_weights, *head)};
}

}  // namespace

Result<DraftMemory> PlanDraftMemory(const SpeculationOptions& speculation, const LlamaConfig& target,
                                    const GgufFile& target_file, const KvLayout& target_layout) {
  if (speculation.draft_model.empty()) return DraftMemory{};
  const std::vector<std::string> drafters = DraftersOf(speculation.type);
  const auto has = [&](std::string_view name) { return std::ranges::find(drafters, name) != drafters.end(); };
  const bool chosen_by_file = has("auto"), is_lm = chosen_by_file && IsLanguageModel(speculation.draft_model);
  if (has("lm") || is_lm) return OfLanguageModel(speculation, target_layout);
  if (has("longspec") || chosen_by_file) return OfLongspec(speculation, target, target_file);
  return DraftMemory{};  // nobody reads it
}

}  // namespace longspec
