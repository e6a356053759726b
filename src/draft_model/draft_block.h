// SPDX-License-Identifier: Apache-2.0
//
// A transformer block of a draft's own, with its own heads, rotary positions and keys, where a kind of draft
// does not share the target's. What its configuration does not say is as the target has it.
#pragma once

#include <string>

#include "attention/attention.h"
#include "attention/kv_span.h"
#include "draft_model/draft_checkpoint.h"
#include "longspec/status.h"
#include "model/block.h"
#include "model/llama.h"
#include "model/rope.h"

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
Result<DraftBlock> ReadDraftBlock(const DraftCheckpoint& checkpoint, const LlamaConfig& target,
                                  const std::string& up);

// Rotary positions as the configuration has them: base 10000 where it names none, and "linear", "yarn" or
// "llama3" scaling. YaRN's factor on cosine and sine is 0.1 ln(factor) + 1, or "attention_factor".
Result<RopeConfig> ReadDraftRope(const DraftCheckpoint& checkpoint, int head_dim);

// Keys and values in the types of the target's cache, or in f16 where these heads cannot be stored in them.
KvLayout DraftCacheLayout(int n_kv_head, int head_dim, const KvLayout& target);

}  // namespace longspec
