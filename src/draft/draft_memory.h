// SPDX-License-Identifier: Apache-2.0
//
// The memory a draft model will take, known from the headers of its files.
#pragma once

#include <cstdint>

#include "attention/kv_span.h"
#include "formats/gguf.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "model/llama.h"

namespace longspec {

struct DraftMemory {
  uint64_t fixed = 0;     // weights, activations and a window's cache, bytes
  uint64_t kv_chunk = 0;  // of each chunk of the context (kKvChunk positions), if the draft sees all of it
};

// Nothing without a draft model, or without a drafter that reads it. Of a LongSpec draft its weights: what it keeps of the text is a ring of some
// hundred rows, whatever the context. A file that cannot be read or does not fit the target is an error.
Result<DraftMemory> PlanDraftMemory(const SpeculationOptions& speculation, const LlamaConfig& target,
                                    const GgufFile& target_file, const KvLayout& target_layout);

}  // namespace longspec
