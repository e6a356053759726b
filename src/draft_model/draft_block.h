// SPDX-License-Identifier: Apache-2.0
//
// A transformer block of a draft's own, with its own heads, rotary positions and keys, where a kind of draft
// does not share the target's. What its configuration does not say is as the target has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "attention/kv_span.h"
#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_weights.h"
#include "longspec/status.h"
#include "model/block.h"
#include "network/rope.h"

namespace longspec {

struct DraftBlock {
  BlockShape shape;  // rotary halves split, as files have them
  RopeConfig rope;

  AttentionShape attention() const;
};

// `up`: the tensor whose rows are the MLP's width. Heads that cannot be computed are refused. Rotary
// positions are ReadDraftRope's, or the target's where the file says that it was trained with those
// ("longspec_rope_of_target"), which may hold more than a configuration can name; a target whose scaling is
// another one by now is refused, or, if the draft was trained without any, rotates as it was trained.
Result<DraftBlock> ReadDraftBlock(const DraftCheckpoint& checkpoint, const ModelSizes& target,
                                  const std::string& up);

// Rotary positions as the configuration has them: base 10000 where it names none, and "linear", "yarn" or
// "llama3" scaling. YaRN's factor on cosine and sine is 0.1 ln(factor) + 1, or "attention_factor".
Result<RopeConfig> ReadDraftRope(const DraftCheckpoint& checkpoint, int head_dim);

// Keys and values in the types of the target's cache, or in f16 where these heads cannot be stored in them.
KvLayout DraftCacheLayout(int n_kv_head, int head_dim, const KvLayout& target);

// The weights of attention: projections of queries, keys, values and of the output. Biases may be absent.
struct DraftAttention {
  DraftMatrix q, k, v, o;
  std::vector<float> q_bias, k_bias, v_bias;

  // PREFIXq_proj.weight and so on, of attention that reads `n_in` values. `rotated`: how rows of queries and
  // keys are ordered.
  std::vector<DraftPart> Parts(const BlockShape& shape, const std::string& prefix, int64_t n_in,
                               DraftRows rotated = DraftRows::kAsStored);
};

// The weights of an MLP: PREFIXgate_proj.weight and so on.
struct DraftMlp {
  DraftMatrix gate, up, down;

  std::vector<DraftPart> Parts(const BlockShape& shape, const std::string& prefix);
};

// The weights of a draft's own transformer block whose input is as wide as the target's residual stream:
// attention and an MLP, each after a norm, under the names that Hugging Face gives them.
struct DraftLayer {
  DraftBlock block;
  std::vector<float> attention_norm, mlp_norm;  // (n_embd)
  DraftAttention attention;
  DraftMlp mlp;

  // Its tensors: PREFIX.input_layernorm.weight, PREFIX.ATTENTION.q_proj.weight, ...
  std::vector<DraftPart> Parts(const std::string& prefix, const std::string& attention_name);
  std::vector<const DraftMatrix*> matrices() const;
};

void Append(std::vector<DraftPart> more, std::vector<DraftPart>* parts);

// ReadDraftBlock of the MLP PREFIX.mlp. Rotary positions are the target's also where there is no
// configuration.
Result<DraftBlock> ReadDraftLayerBlock(const DraftCheckpoint& checkpoint, const ModelSizes& target,
                                       const std::string& prefix);

}  // namespace longspec
