// SPDX-License-Identifier: Apache-2.0
//
// What the trainer reads and writes: the target's embedding and LM head, checkpoints, and the draft model
// that the engine loads. Files are complete under their names or not there.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "longspec/status.h"
#include "train/adamw.h"
#include "train/draft_net.h"

namespace longspec::train {

// Rows of the vocabulary as f32, decoded exactly. The head is the embedding itself where the model ties them.
struct FrozenParts {
  at::Tensor embedding, head;  // (n_vocab, n_embd)
};
// The file must be the one the features were made with.
Result<FrozenParts> LoadFrozenParts(const std::string& gguf_path, const FeatureTarget& target);

// Where a run stands after `steps` optimiser steps.
struct TrainState {
  std::string run;  // describes options and data; a checkpoint continues the run that it describes
  int64_t steps = 0;
  double mean_loss = 0.0;         // running mean, for display
  int64_t trained_positions = 0;  // of what the weights began with
};
Status SaveCheckpoint(const TrainState& state, const DraftNet& net, const AdamW& optimiser,
                      const std::string& path);
// Into `net` and `optimiser`. kInvalidArgument if the checkpoint is of another run than state->run.
Status LoadCheckpoint(const std::string& path, TrainState* state, const DraftNet& net,
                      const AdamW& optimiser);

// A folder with config.json and model.safetensors, made if it is not there.
struct DraftExport {
  int64_t trained_positions = 0;
  std::vector<int64_t> vocab;  // empty: the whole vocabulary
};
Status ExportDraft(const DraftNet& net, const DraftExport& about, const std::string& folder);
// The weights of a draft model (a folder of ExportDraft's kind, or its .safetensors file) into `net`. Returns
// the positions it was trained for, 0 if it does not say.
Result<int64_t> LoadDraft(const std::string& path, const DraftNet& net);

// The tokens that draft's head is reduced to, ascending; empty if it is not. kCorrupt if they are no tokens
// of `n_vocab`.
Result<std::vector<int64_t>> LoadDraftVocab(const std::string& path, int n_vocab);

// What the draft can take over of its target: self-attention, MLP and their norms of the first layer, which
// reads embeddings as the draft does; the query and output projection of cross-attention and its norm of the
// last layer, whose keys and values it reads. Outputs are made small.
Status InitFromTarget(const std::string& gguf_path, const DraftNet& net);

}  // namespace longspec::train
