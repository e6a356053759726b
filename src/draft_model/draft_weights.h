// SPDX-License-Identifier: Apache-2.0
//
// A learned draft's tensors made ready for one target. The list of a kind's parts (draft_checkpoint.h) checks
// the shapes, tells the bytes beforehand, and loads. Matrices are repacked for the lane that multiplies them
// (draft_lane.h), in one piece of memory; the LM head is the target's, or some rows of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "draft_model/draft_checkpoint.h"
#include "kernels/ops.h"
#include "kernels/packing.h"
#include "longspec/status.h"
#include "model/shared_parts.h"

namespace longspec {

// A matrix where its lane multiplies it. Its memory is another's.
struct DraftMatrix {
  kernels::PackedMatrix packed;
  int64_t n_out() const { return packed.n_out; }  // 0: there is none
};

// --- What fits. Refusals say "PATH: the draft model does not fit the target: WHAT DRAFT, the target has
// TARGET".

Status DraftMisfit(const DraftCheckpoint& checkpoint, const std::string& what, const std::string& draft,
                   const std::string& target);
// A size as the configuration states it; one it does not state (0) fits.
Status CheckDraftSize(const DraftCheckpoint& checkpoint, const std::string& what, int draft, int target);
// Hidden size and vocabulary.
Status CheckDraftWidths(const DraftCheckpoint& checkpoint, const ModelSizes& target);
// That queries meet the target's own keys: its heads and rotary positions.
Status CheckDraftSharesKeys(const DraftCheckpoint& checkpoint, const ModelSizes& target);
// That it was trained for these rotary positions: base, scaling and factor.
Status CheckDraftRope(const DraftCheckpoint& checkpoint, const ModelSizes& target);
Status CheckDraftShapes(const DraftCheckpoint& checkpoint, std::span<const DraftPart> parts);
// Rows of a matrix that is there (the width of an MLP, say), a multiple of 32.
Result<int> DraftRowsOf(const DraftCheckpoint& checkpoint, const std::string& tensor,
                        const std::string& what);

// --- Loading.

// A type matrices run in, by name ("q8_0", "f32", ...); "": as stored if that is a block type, else Q8_0.
Status CheckDraftWeights(const std::string& weights);
// Of all matrices. REQUIRES: shapes are checked.
uint64_t DraftMatrixBytes(const DraftCheckpoint& checkpoint, std::span<const DraftPart> parts,
                          const std::string& weights);
// REQUIRES: shapes are checked. Values that are not finite are refused.
Status LoadDraftParts(const DraftCheckpoint& checkpoint, std::span<const DraftPart> parts,
                      const std::string& weights, const SharedParts& target, AlignedBuffer* memory);

// The target's LM head, or the rows of it that kDraftVocabTensor names. Such rows are rounded to Q4_1 where
// the draft's own matrices run in a block type, if that takes less: a draft's step is bound by the bytes that
// it reads.
struct DraftHead {
  std::vector<int32_t> vocab;  // ascending: what row i stands for; empty: token i
  AlignedBuffer memory;        // of a reduced head
  DraftMatrix matrix;          // (n_out, n_embd)
};
// The target's, whole.
DraftMatrix HeadOf(const SharedParts& target);
Status LoadDraftHead(const DraftCheckpoint& checkpoint, const std::string& weights, const SharedParts& target,
                     DraftHead* head);
// What its memory will be. `target_head`: the target's output matrix.
uint64_t DraftHeadBytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const TensorView& target_head);

// Its rows: logits of a row of the draft.
int64_t DraftHeadRows(const DraftCheckpoint& checkpoint, const ModelSizes& target);

// The tokens that kDraftVocabTensor of the file `path` names, ascending. Each is named once and of a
// vocabulary of n_vocab, or it is refused.
Result<std::vector<int32_t>> ReadDraftVocab(const std::string& path, const TensorView& tensor, int n_vocab);

// The whole numbers of an I32 or I64 tensor.
std::vector<int64_t> DraftTokens(const TensorView& tensor);

// Some rows of a packed matrix as a packed matrix of its own: the LM head of a reduced vocabulary.

// Row i of the result, which lies in `memory`, has the bits of row rows[i]. REQUIRES: rows are in range.
kernels::PackedMatrix GatherPackedRows(const kernels::PackedMatrix& matrix, std::span<const int32_t> rows,
                                       AlignedBuffer* memory);

}  // namespace longspec
