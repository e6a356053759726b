// SPDX-License-Identifier: Apache-2.0
//
// A model on a card: the passes of model/transformer.h, with the same bits. What a pass does is planned alike
// (model/pass_plan.h), and its rows, their angles, and what attention reads are brought to the card before
// it; then all is one stream of launches. Logits, states and queries stay there until they are asked for.
// Embedding rows are decoded on the host, from the file.
#pragma once

#include <memory>

#include "formats/gguf.h"
#include "gpu/gpu_memory.h"
#include "longspec/status.h"
#include "model/lane.h"
#include "model/target.h"
#include "model/transformer.h"
#include "network/model_spec.h"

namespace longspec {

// What it takes of the card.
ModelMemory PlanGpuMemory(const ModelSpec& spec, const GgufFile& file, int max_rows);

// Weights are packed by the lane's team, which drafts use afterwards. `mover` moves what lies on the card; it
// and the lane outlive the model. kResourceExhausted: the card has no room. REQUIRES: spec came from this
// file, and the card has kernels for it (CheckGpuModel).
Result<std::unique_ptr<Target>> LoadGpuModel(std::shared_ptr<Runtime> card, const KvMover& mover,
                                             std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                             const CpuLane& lane, const ModelLoadOptions& options);

// kUnsupported: a card has no kernels for what this model does, or for caches of this layout.
Status CheckGpuModel(const ModelSpec& spec, const KvLayout& layout);

}  // namespace longspec
