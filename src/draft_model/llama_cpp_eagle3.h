// SPDX-License-Identifier: Apache-2.0
//
// EAGLE-3 drafts as llama.cpp writes them: a GGUF file of the architecture that ours has, too, and of another
// layout. Keys say what config.json does; layers are numbered by their inputs; rows of queries and keys are
// in the order of adjacent rotary pairs; d2t holds tokens, not offsets. Read, it is a checkpoint as any
// other.
#pragma once

#include <memory>
#include <string>

#include "draft_model/draft_checkpoint.h"
#include "formats/gguf.h"
#include "longspec/status.h"

namespace longspec {

// Of a file whose architecture is "eagle3": it has llama.cpp's names of tensors or keys, which ours has not.
bool IsLlamaCppEagle3(const GgufFile& file);

// What its keys say, as config.json. What would change the draft and is not known is refused.
Result<std::string> LlamaCppEagle3Config(const GgufFile& file);

// Its tensors under the names, and in the order of rows, of published checkpoints. REQUIRES: the
// configuration is set.
Status AddLlamaCppEagle3Tensors(std::shared_ptr<const GgufFile> file, DraftCheckpoint* checkpoint);

}  // namespace longspec
