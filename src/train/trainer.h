// SPDX-License-Identifier: Apache-2.0
//
// Training a draft model of any kind from features. A run is a pure function of its options and features (on
// one kind of CPU): stopped and continued, with one thread or many, it ends in the same weights. On a CPU
// each thread has a forward and backward pass of its own, which shares nothing with the others' but the
// weights. Free of LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longspec/status.h"
#include "train/optimiser_options.h"
#include "train/schedule.h"
#include "train/trainee_options.h"
#include "train/validation_result.h"

namespace longspec::train {

enum class Schedule : uint8_t { kCosine, kStableDecay };

struct TrainOptions {
  std::vector<std::string> features;  // folders of feature shards
  std::string model;                  // GGUF file they were made with
  std::string output;                 // folder for the draft model and the checkpoint
  std::string init;                   // draft model to begin with; empty: random weights
  bool init_from_target = false;      // or weights of the target's layers

  TraineeOptions draft;

  double learning_rate = 5e-4;  // peak
  Schedule schedule = Schedule::kCosine;
  double warmup = 0.1;       // of a cosine: share of all steps
  StableDecay stable_decay;  // of the other
  int64_t epochs = 1;
  int64_t steps = 0;    // 0: as many as the epochs have
  int batch = 32;       // sequences of an optimiser step
  int micro_batch = 2;  // sequences of a forward pass; shares one lag and one draw of positions
  std::optional<Positions> positions;  // of short sequences; absent: the kind's
  int vocab = 0;           // the draft's head is reduced to the most frequent tokens; 0: it is not
  std::string prior;       // table of n-grams whose tokens fill that up where the features have too few
  double distill = 0.0;    // share of the target's distribution in the labels
  int tokens_of_loss = 0;  // of its head that losses are over, others in each pass; 0: all
  OptimiserOptions optimiser;
  uint64_t seed = 42;

  // What does not change the result.
  std::vector<std::string> validation;  // folders of feature shards to look at with every checkpoint
  int64_t checkpoint_every = 200;       // optimiser steps
  int threads = 0;                      // forward passes at the same time; 0: LibTorch's choice
  std::string device = "cpu";           // or "cuda", "cuda:1"
};

struct TrainProgress {
  int64_t step = 0, steps = 0;  // done, of
  double loss = 0.0;            // of the last step
  double mean_loss = 0.0;       // running mean
  double learning_rate = 0.0;   // of the last step
  double gradient_norm = 0.0;
  int64_t tokens = 0;  // of this call
  bool end_of_step = false;
  const Validation* validation = nullptr;  // of this step's weights
};

struct TrainSummary {
  int64_t steps = 0, tokens = 0;  // done in all; tokens of this call
  double mean_loss = 0.0;
  double seconds = 0.0,
         giga_macs = 0.0;       // of this call's steps: multiply-adds of matrix products and attention
  double peak_giga_macs = 0.0;  // a second, of matrix products alone, measured after them; 0: not
};

// on_progress, called after every forward pass, returns false to stop: then the state of the last whole step
// and the draft as it is are saved, and the result is kCancelled.
Result<TrainSummary> Train(const TrainOptions& options,
                           const std::function<bool(const TrainProgress&)>& on_progress);

// The checkpoint in an output folder, and the one of a run that decayed: from before that.
std::string CheckpointPath(const std::string& output);
std::string StableCheckpointPath(const std::string& output);

}  // namespace longspec::train
