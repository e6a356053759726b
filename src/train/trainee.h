// SPDX-License-Identifier: Apache-2.0
//
// What is trained: a draft of one kind, its parameters, the loss of a batch and what it would draft. The
// trainer, checkpoints and validation know no kind. One file for each kind implements this and ends with its
// entry of the table in trainee_kinds.h. Const functions may be called from any thread.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "longspec/status.h"
#include "train/feature_set.h"
#include "train/loss_head.h"
#include "train/parameters.h"
#include "train/schedule.h"
#include "train/sibling.h"
#include "train/trainee_options.h"

namespace longspec::train {

// Of the target, frozen, on the device.
struct FrozenHeads {
  at::Tensor embedding;   // (n_vocab, n_embd)
  at::Tensor head;        // (n, n_embd): of the tokens that the draft chooses among
  at::Tensor loss_head;   // the same in the type that its products in training have
  at::Tensor whole_head;  // (n_vocab, n_embd)
};

struct TraineeSetup {
  FeatureTarget target;
  int n_layer = 0;                              // of the target
  std::shared_ptr<const GgufFile> model;        // the target's file
  std::shared_ptr<const Sibling> sibling = {};  // null: none is asked for
  FrozenHeads frozen;
  std::vector<int64_t> vocab;  // what the draft chooses among, ascending; empty: every token
  TraineeOptions options;      // as the kind's Resolve made them
  uint64_t seed = 0;
  at::Device device = at::kCPU;
};

// What a pass draws; shared by all its sequences.
struct PassDraw {
  int lag = 1;
  PositionDraw positions;
  uint64_t seed = 0;           // of what else is drawn
  int64_t tokens_of_loss = 0;  // that losses are over; 0: all of the draft's head
};

// A batch on the device and at the positions that were drawn.
struct PlacedBatch : Batch {
  at::Tensor embedded;   // (n, n_embd)
  at::Tensor positions;  // (n) int64
  LossHead loss_head;    // what its targets' ids are of
};

struct PassLoss {
  at::Tensor sum;           // scalar, differentiable in the parameters; undefined: nothing is to be learned
  int64_t rows = 0;         // sum / rows of all passes of a step is the step's loss
  double forward_macs = 0;  // multiply-adds of the draft's forward pass, without the head
  double head_rows = 0;     // rows that went through the head
};

class Trainee {
 public:
  explicit Trainee(TraineeSetup setup);
  virtual ~Trainee() = default;
  Trainee(const Trainee&) = delete;
  Trainee& operator=(const Trainee&) = delete;

  const TraineeSetup& setup() const { return setup_; }
  const Parameters& parameters() const { return parameters_; }

  virtual PassLoss Loss(const PlacedBatch& batch, const PassDraw& draw) const = 0;

  // What a chain of n_lags drafts would be drafted from, the tokens of the batch being what was accepted: at
  // [j - 1] the states (n, width) whose products with Head(j) choose what follows each row's token, where
  // the draft knows the target's states up to j tokens before. Zeros where there is no such state.
  virtual std::vector<at::Tensor> Chain(const PlacedBatch& batch, int n_lags) const = 0;
  virtual at::Tensor Head(int lag) const;

  // Options that decide the weights, as the command line has them.
  virtual std::string Describe() const = 0;

  // Begins with weights of the target; whether it does so unasked.
  virtual bool BeginsWithTarget() const { return false; }
  virtual Status InitFromTarget();
  // Begins with a draft of the kind in a GGUF file. Returns the positions it was trained for, 0 if it does
  // not say.
  virtual Result<int64_t> InitFromGguf(const GgufFile& file);

  // config.json and the tensors of model.safetensors; what else belongs into the folder.
  virtual void AddConfig(nlohmann::json* config) const;
  virtual void AddTensors(SafetensorsWriter* writer) const;
  virtual Status ExportMore(const std::string& folder, int64_t trained_positions) const;

 protected:
  int n_ff() const { return setup_.options.n_ff > 0 ? setup_.options.n_ff : setup_.target.n_ff; }
  // The multiply-adds of a pass over sequences in which each row sees all rows before it. `shape`: of its
  // heads.
  double CausalMacs(const Ends& ends, const FeatureTarget& shape) const;
  // Of what such a pass made, (n, width): every row foresees what follows it. `head` (n_vocab, width): what
  // the draft chooses by, as batch.loss_head has its tokens.
  PassLoss CausalLoss(const PlacedBatch& batch, const at::Tensor& states, const at::Tensor& head,
                      const FeatureTarget& shape) const;

  TraineeSetup setup_;
  Parameters parameters_;
};

}  // namespace longspec::train
