// SPDX-License-Identifier: Apache-2.0
//
// Files of language models that draft for a target with the same vocabulary: what they hold, whether they fit
// that target, and how they are written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "longspec/status.h"
#include "network/model_spec.h"
#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace longspec {

// One such file. kDraftVocabTensor (formats/draft_names.h) names the tokens that the model chooses among, as
// in other drafts: a step is bound by the bytes that it reads, and a small model's head is most of them. It
// is
//   any model as it is;
//   one with a head of these tokens (WriteLmPart), which is kDraftHeadTensor;
//   one that was made for a target (longspec-train --kind lm --draft-vocab), without a tokenizer: it leaves
//   out embedding and head, which are its target's, or it is of another width (--sibling) and has rows of its
//   own for these tokens, and says by kDraftStandInTensor which of them is read for each token of the target.
struct LmFile {
  std::shared_ptr<const GgufFile> file;  // with all tensors that a model has
  ModelSpec spec;
  bool of_target = false;          // it was made for one target
  std::vector<int32_t> vocab;      // ascending: the token of each logit; empty: logit i is of token i
  std::vector<int32_t> stand_ins;  // by the target's tokens: the row that is read; empty: that of the token
};

// `embedding` and `head`: the target's, as stored; they must outlive the result where of_target. Rows of a
// reduced head are rounded to Q4_1 beside matrices of a block type, if that takes less.
Result<LmFile> ReadLmFile(std::shared_ptr<const GgufFile> draft, const TensorView& embedding,
                          const TensorView& head);

// Writes it with its matrices in another type; vectors and tokens stay as they are.
Status WriteLmGguf(const GgufFile& lm, DType type, const std::string& path);
// What a draft has of a whole model.
struct LmPart {
  std::vector<int> layers;      // strictly ascending; empty: all
  std::vector<int32_t> vocab;   // tokens of its head, ascending; empty: all
  std::optional<DType> type{};  // of its matrices; empty: as they are, and rows of a head rounded as above
};
// Writes that. With a head of some tokens it is a draft and no model any more; with some layers alone it is a
// model, but a poor one. kInvalidArgument if the head is reduced already, or there are no such layers;
// kUnsupported of some layers of an architecture in which they are not all alike.
Status WriteLmPart(const GgufFile& model, const LmPart& part, const std::string& path);

// Families pad one vocabulary to different numbers of tokens (Qwen2.5: 151,936 and 152,064), which no text
// has. So many more or fewer are taken for padding.
inline constexpr int kMostPadding = 128;

// Whether a draft fits a target with `n_vocab` logits and this vocabulary: one whose number of tokens is
// another by more than kMostPadding, or with another token of the same number, is refused with the reason.
// One that was made for a target has its vocabulary.
Status CheckLmFit(const LmFile& draft, int n_vocab, const std::vector<std::string>& tokens);

}  // namespace longspec
