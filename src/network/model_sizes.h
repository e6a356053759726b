// SPDX-License-Identifier: Apache-2.0
//
// The numbers of a model: all that a cache, a draft or a memory plan must know to fit beside it. What its
// layers do is model_spec.h's.
#pragma once

#include "attention/attention.h"
#include "attention/kv_span.h"
#include "network/rope.h"

namespace longspec {

struct ModelSizes {
  int n_layer = 0, n_embd = 0, n_head = 0, n_head_kv = 0, head_dim = 0, n_ff = 0, n_vocab = 0;
  int n_logits = 0;     // rows of the LM head: n_vocab, but in a draft that chooses among fewer tokens
  int n_ctx_train = 0;  // positions
  float rms_eps = 1e-5F;
  RopeConfig rope;  // of layers that have none of their own

  AttentionShape attention() const;  // scores are multiplied by 1 / sqrt(head_dim)
  KvLayout kv_layout(CacheType k, CacheType v) const;
  int context_length() const;  // positions it was trained for, RoPE scaling applied
};

}  // namespace longspec
