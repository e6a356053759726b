// SPDX-License-Identifier: Apache-2.0
//
// Keys and tensors in files of draft models, which the trainer writes and both read (docs/formats.md).
#pragma once

namespace longspec {

// Tokens the target's head is reduced to, one integer each (FR-Spec); absent: the whole vocabulary.
inline constexpr char kDraftVocabTensor[] = "draft.vocab";
// Rows of a head of the draft's own, one for each of these tokens, where its embedding is not the head.
inline constexpr char kDraftHeadTensor[] = "draft.head.weight";
// For each token of the target the row of a draft's own embedding that is read for it, where that has fewer.
inline constexpr char kDraftStandInTensor[] = "draft.stand_in";
// config.json: positions that were seen in training.
inline constexpr char kTrainedPositionsKey[] = "longspec_trained_positions";
// GGUF: config.json of a learned draft.
inline constexpr char kDraftConfigKey[] = "longspec.config_json";
// GGUF, of a language model: TargetFingerprint of the target that it was made for.
inline constexpr char kLmTargetKey[] = "longspec.target";

}  // namespace longspec
