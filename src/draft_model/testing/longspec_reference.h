// SPDX-License-Identifier: Apache-2.0
//
// The LongSpec draft model as its specification says it, in double precision and
// with no thought of speed: checkpoint layout (rotary halves split), nothing cached, nothing shared with the
// engine but the target's keys and values as they are stored.
#pragma once

#include <vector>

#include "attention/kv_span.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/reference_math.h"

namespace longspec::testing {

// What a row of the draft sees: tokens of its window in order, itself last, by absolute position.
struct ReferenceRow {
  std::vector<int32_t> tokens;
  std::vector<int> positions;
};

class LongspecReference : private ReferenceMath {
 public:
  LongspecReference(const DraftTensors& draft, const SharedParts& target)
      : ReferenceMath(draft, target, target.sizes->attention(), target.sizes->rope), c_(*target.sizes) {}

  // Residual stream before the head. `last_layer` (positions, then K and V per head): what the row may see.
  struct TargetKeys {
    std::vector<Vec> k, v;  // per position: (n_kv_head * head_dim), K in checkpoint layout
  };

  Vec Hidden(const ReferenceRow& row, const TargetKeys& seen) const {
    Vec x = Embedding(row.tokens.back());
    const int position = row.positions.back();
    std::vector<Vec> keys, values;
    for (size_t i = 0; i < row.tokens.size(); ++i) {
      const Vec n = Norm(Embedding(row.tokens[i]), "input_layernorm.weight");
      Vec k = Linear(n, "self_attn.k_proj", true);
      Rotate(k, row.positions[i]);
      keys.push_back(k);
      values.push_back(Linear(n, "self_attn.v_proj", true));
    }
    Vec q = Linear(Norm(x, "input_layernorm.weight"), "self_attn.q_proj", true);
    Rotate(q, position);
    Add(x, Linear(Attend(q, keys, values), "self_attn.o_proj", false));
    q = Linear(Norm(x, "post_self_attention_layernorm.weight"), "cross_attn.q_proj", true);
    Rotate(q, position);
    Add(x, Linear(Attend(q, seen.k, seen.v), "cross_attn.o_proj", false));
    AddMlp(x, "post_cross_attention_layernorm.weight", "");
    return x;
  }

  // With the tied embedding as head, and no norm before it.
  Vec Head(const Vec& hidden) const { return TargetHead(hidden); }

  // After the last of `tokens`, which lie at positions 0, 1, ...: it sees the window before it.
  Vec HiddenOfLast(const std::vector<int32_t>& tokens, int window, const TargetKeys& seen) const {
    ReferenceRow row;
    const int last = static_cast<int>(tokens.size()) - 1;
    for (int p = std::max(0, last - window); p <= last; ++p) {
      row.tokens.push_back(tokens[static_cast<size_t>(p)]);
      row.positions.push_back(p);
    }
    return Hidden(row, seen);
  }

  // Positions [0, n) of the target's last layer, keys put back into checkpoint layout.
  TargetKeys ReadTarget(const KvSpan& span, int n) const {
    TargetKeys out;
    const int head_dim = c_.head_dim, half = c_.rope.n_rot / 2;
    for (int p = 0; p < n; ++p) {
      Vec k(static_cast<size_t>(c_.n_head_kv * head_dim)), v = k;
      for (int h = 0; h < c_.n_head_kv; ++h) {
        for (int d = 0; d < head_dim; ++d) {
          const bool adjacent = c_.rope.pairing == kernels::RopePairing::kAdjacent && d < c_.rope.n_rot;
          const int to = adjacent ? d / 2 + d % 2 * half : d;
          k[static_cast<size_t>(h * head_dim + to)] = Key(span, p, h, d);
          v[static_cast<size_t>(h * head_dim + d)] = Value(span, p, h, d);
        }
      }
      out.k.push_back(k);
      out.v.push_back(v);
    }
    return out;
  }

  // Keys as the draft's own ring stores them, in checkpoint layout.
  Vec OwnKey(int32_t token, int position) const {
    Vec k = Linear(Norm(Embedding(token), "input_layernorm.weight"), "self_attn.k_proj", true);
    Rotate(k, position);
    return k;
  }

  static double Key(const KvSpan& span, int p, int h, int d) {
    return static_cast<double>(span.KeyAt(p, h, d));
  }
  static double Value(const KvSpan& span, int p, int h, int d) {
    return static_cast<double>(span.ValueAt(p, h, d));
  }

 private:
  const ModelSizes& c_;
};

}  // namespace longspec::testing
