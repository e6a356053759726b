// SPDX-License-Identifier: Apache-2.0
//
// The LongSpec draft model as its specification says it (research: longspec.md 1), in double precision and
// with no thought of speed: checkpoint layout (rotary halves split), nothing cached, nothing shared with the
// engine but the target's keys and values as they are stored.
#pragma once

#include <cmath>
#include <vector>

#include "attention/kv_span.h"
#include "draft/testing/longspec_files.h"
#include "model/rope.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace longspec::testing {

using Vec = std::vector<double>;

// What a row of the draft sees: tokens of its window in order, itself last, by absolute position.
struct ReferenceRow {
  std::vector<int32_t> tokens;
  std::vector<int> positions;
};

class LongspecReference {
 public:
  LongspecReference(const DraftTensors& draft, const SharedParts& target)
      : d_(draft), target_(target), c_(*target.config), rope_(c_.rope) {}

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
    const Vec n = Norm(x, "post_cross_attention_layernorm.weight");
    Vec gate = Linear(n, "mlp.gate_proj", false);
    const Vec up = Linear(n, "mlp.up_proj", false);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    Add(x, Linear(gate, "mlp.down_proj", false));
    return x;
  }

  // With the tied embedding as head, and no norm before it.
  Vec Head(const Vec& hidden) const {
    Vec logits;
    for (int32_t t = 0; t < c_.n_vocab; ++t) {
      const Vec e = Embedding(t);
      double dot = 0;
      for (size_t i = 0; i < hidden.size(); ++i) dot += e[i] * hidden[i];
      logits.push_back(dot);
    }
    return logits;
  }

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
  static void Add(Vec& x, const Vec& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Vec Embedding(int32_t token) const {
    std::vector<float> row(static_cast<size_t>(c_.n_embd));
    DequantizeRow(target_.embedding.dtype, target_.embedding.row(token), c_.n_embd, row.data());
    return {row.begin(), row.end()};
  }

  Vec Norm(const Vec& x, const std::string& name) const {
    double ss = 0;
    for (const double v : x) ss += v * v;
    const double r = 1.0 / std::sqrt(ss / static_cast<double>(x.size()) + static_cast<double>(c_.rms_eps));
    Vec y;
    for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * r * static_cast<double>(d_[name][i]));
    return y;
  }

  Vec Linear(const Vec& x, const std::string& name, bool bias) const {
    const std::vector<float>& w = d_[name + ".weight"];
    Vec y;
    for (size_t o = 0; o < w.size() / x.size(); ++o) {
      double sum = bias ? static_cast<double>(d_[name + ".bias"][o]) : 0.0;
      for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(w[o * x.size() + i]) * x[i];
      y.push_back(sum);
    }
    return y;
  }

  void Rotate(Vec& x, int position) const {
    std::vector<float> cos_sin(static_cast<size_t>(c_.rope.n_rot));
    rope_.Row(position, cos_sin.data());
    const auto half = static_cast<size_t>(c_.rope.n_rot / 2), head_dim = static_cast<size_t>(c_.head_dim);
    for (size_t head = 0; head < x.size(); head += head_dim) {
      for (size_t i = 0; i < half; ++i) {
        const auto cos = static_cast<double>(cos_sin[2 * i]), sin = static_cast<double>(cos_sin[2 * i + 1]);
        const double a = x[head + i], b = x[head + i + half];
        x[head + i] = a * cos - b * sin;
        x[head + i + half] = b * cos + a * sin;
      }
    }
  }

  Vec Attend(const Vec& q, const std::vector<Vec>& keys, const std::vector<Vec>& values) const {
    const auto head_dim = static_cast<size_t>(c_.head_dim);
    Vec out(q.size(), 0.0);
    if (keys.empty()) return out;
    for (size_t h = 0; h < static_cast<size_t>(c_.n_head); ++h) {
      const size_t at = h * head_dim, kv = h / static_cast<size_t>(c_.n_head / c_.n_head_kv) * head_dim;
      Vec scores;
      double most = -1e300, sum = 0;
      for (const Vec& k : keys) {
        double dot = 0;
        for (size_t d = 0; d < head_dim; ++d) dot += q[at + d] * k[kv + d];
        scores.push_back(dot / std::sqrt(static_cast<double>(head_dim)));
        most = std::max(most, scores.back());
      }
      for (double& s : scores) sum += s = std::exp(s - most);
      for (size_t i = 0; i < keys.size(); ++i) {
        for (size_t d = 0; d < head_dim; ++d) out[at + d] += scores[i] / sum * values[i][kv + d];
      }
    }
    return out;
  }

  const DraftTensors& d_;
  const SharedParts& target_;
  const LlamaConfig& c_;
  RopeTable rope_;
};

}  // namespace longspec::testing
