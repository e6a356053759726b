// SPDX-License-Identifier: Apache-2.0
//
// The file of a language model that drafts. One that was made for a target (longspec-train --kind lm
// --draft-vocab) leaves out the embedding and the LM head, which are its target's, and the tokenizer;
// kDraftVocabTensor names the rows of the head that it chooses among, as in other drafts: a step is bound by
// the bytes that it reads, and a small model's head is most of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/draft_names.h"
#include "formats/gguf.h"
#include "longspec/status.h"
#include "model/llama.h"
#include "tensor/tensor_view.h"

namespace longspec {

struct LmFile {
  std::shared_ptr<const GgufFile> file;  // with all tensors that a model has
  LlamaConfig config;
  bool of_target = false;      // what it left out is the target's
  std::vector<int32_t> vocab;  // ascending: the token of each logit; empty: logit i is of token i
};

// `embedding` and `head`: the target's, as stored; they must outlive the result where of_target. Rows of a
// reduced head are rounded to Q4_1 beside matrices of a block type, if that takes less.
Result<LmFile> ReadLmFile(std::shared_ptr<const GgufFile> draft, const TensorView& embedding,
                          const TensorView& head);

// Writes it with its matrices in another type; vectors and tokens stay as they are.
Status WriteLmGguf(const GgufFile& lm, DType type, const std::string& path);

}  // namespace longspec
