// SPDX-License-Identifier: Apache-2.0
//
// A LongSpec draft model made ready for one target: checked against it, its rotary layout turned to the
// target's, its matrices repacked. Immutable; shared by all drafters of that target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_weights.h"
#include "kernels/packing.h"
#include "longspec/status.h"
#include "model/shared_parts.h"

namespace longspec {

// One position's input is a token and nothing else of the target but its last layer's keys and values:
//   r1 = E[x] + self(norm(r0)); r2 = r1 + cross(norm(r1)); r3 = r2 + mlp(norm(r2)); logits = W r3
// with the target's embedding E and head W, and no norm before W. With keys of its own ("longspec_own_keys")
// cross-attention makes them of the target's final hidden states instead.
struct LongspecModel {
  static constexpr std::string_view kKind = "longspec";

  // `weights`: CheckDraftWeights. What does not fit the target is refused with the reason.
  static Result<std::shared_ptr<const LongspecModel>> Load(const DraftCheckpoint& checkpoint,
                                                           const std::string& weights,
                                                           const SharedParts& target);
  // Whether the draft was made for this target, as far as both say: its configuration and the shapes of its
  // tensors.
  static Status CheckFit(const DraftCheckpoint& checkpoint, const LlamaConfig& target);
  // What bytes() of the loaded model will be. `target_head`: the target's output matrix.
  // REQUIRES: the draft fits the target.
  static uint64_t Bytes(const DraftCheckpoint& checkpoint, const std::string& weights,
                        const LlamaConfig& target, const TensorView& target_head);

  std::string path;
  int n_ff = 0;
  int window = 512;           // self-attention at position p sees p - window .. p
  int trained_positions = 0;  // 0: unknown
  bool own_keys = false;      // cross_k and cross_v are there

  // Whether a draft of this file has keys of its own.
  static Result<bool> HasOwnKeys(const DraftCheckpoint& checkpoint);
  // The block that runs it: the target's, but for the width of its MLP, which a draft's file says.
  // As its configuration says, or 512.
  static Result<int> WindowOf(const DraftCheckpoint& checkpoint);
  static DraftBlock Block(const LlamaConfig& target, int n_ff);
  static Result<DraftBlock> ReadBlock(const DraftCheckpoint& checkpoint, const LlamaConfig& target);

  AlignedBuffer memory;                                // of all matrices
  std::vector<float> self_norm, cross_norm, mlp_norm;  // (n_embd)
  kernels::PackedWeights self_q, self_k, self_v, self_o, cross_q, cross_k, cross_v, cross_o, gate, up, down;
  std::vector<float> self_q_bias, self_k_bias, self_v_bias, cross_q_bias, cross_k_bias, cross_v_bias;
  DraftHead head;

  size_t bytes() const { return memory.size() + head.memory.size(); }
};

}  // namespace longspec
