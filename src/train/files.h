// SPDX-License-Identifier: Apache-2.0
//
// What the trainer reads and writes: the target's embedding and LM head, checkpoints, and the draft model
// that the engine loads. Files are complete under their names or not there.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "longspec/status.h"
#include "train/optimiser.h"
#include "train/trainee.h"

namespace longspec::train {

// Rows of the vocabulary as f32, decoded exactly. The head is the embedding itself where the model ties them.
struct FrozenParts {
  at::Tensor embedding, head;  // (n_vocab, n_embd)
};
// kInvalidArgument if the file is not the one the features were made with.
Result<FrozenParts> LoadFrozenParts(const GgufFile& file, const FeatureTarget& target);

// Where a run stands after `steps` optimiser steps.
struct TrainState {
  std::string run;  // describes options and data; a checkpoint continues the run that it describes
  int64_t steps = 0;
  int64_t total = 0;              // steps of the whole run
  double mean_loss = 0.0;         // running mean, for display
  int64_t trained_positions = 0;  // of what the weights began with
};
Status SaveCheckpoint(const TrainState& state, const Parameters& parameters, const Optimiser& optimiser,
                      const std::string& path);
// Into `parameters` and `optimiser`. kInvalidArgument if the checkpoint is of another run than state->run.
Status LoadCheckpoint(const std::string& path, TrainState* state, const Parameters& parameters,
                      const Optimiser& optimiser);

// A folder with config.json and model.safetensors, made if it is not there.
Status ExportDraft(const Trainee& trainee, int64_t trained_positions, const std::string& folder);
// The weights of a draft model into those of `trainee`: a folder of ExportDraft's kind, its .safetensors
// file, or a GGUF file, also of block types. Returns the positions it was trained for, 0 if it does not say.
Result<int64_t> LoadDraft(const std::string& path, Trainee& trainee);

// The tokens that draft's head is reduced to, ascending; empty if it is not. kCorrupt if they are no tokens
// of `n_vocab`.
Result<std::vector<int64_t>> LoadDraftVocab(const std::string& path, int n_vocab);

// As f32, in any tensor's own order.
void AddTensor(const std::string& name, const at::Tensor& tensor, SafetensorsWriter* writer);

}  // namespace longspec::train
