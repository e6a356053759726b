// SPDX-License-Identifier: Apache-2.0
//
// What draft models are made of, for naive references of them: double precision, checkpoint layout (rotary
// halves split), nothing shared with the engine.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "draft_model/testing/longspec_files.h"
#include "network/rope.h"
#include "tensor/dequantize.h"

namespace longspec::testing {

using Vec = std::vector<double>;

class ReferenceMath {
 public:
  ReferenceMath(const DraftTensors& draft, const SharedParts& target, const AttentionShape& heads,
                const RopeConfig& rope)
      : d_(draft),
        target_(target),
        heads_(heads),
        rope_(rope),
        eps_(static_cast<double>(target.sizes->rms_eps)) {}

  // The target's head on x as it is, where that head is its embedding.
  Vec TargetHead(const Vec& x) const {
    Vec logits;
    for (int32_t t = 0; t < target_.sizes->n_vocab; ++t) {
      const Vec e = Embedding(t);
      double dot = 0;
      for (size_t i = 0; i < x.size(); ++i) dot += e[i] * x[i];
      logits.push_back(dot);
    }
    return logits;
  }

  // x += down(silu(gate(norm(x))) * up(norm(x))), of tensors PREFIXmlp.*.
  void AddMlp(Vec& x, const std::string& norm, const std::string& prefix) const {
    const Vec n = Norm(x, norm);
    Vec gate = Linear(n, prefix + "mlp.gate_proj", false);
    const Vec up = Linear(n, prefix + "mlp.up_proj", false);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    Add(x, Linear(gate, prefix + "mlp.down_proj", false));
  }

  static void Add(Vec& x, const Vec& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Vec Embedding(int32_t token) const {
    std::vector<float> row(static_cast<size_t>(target_.sizes->n_embd));
    DequantizeRow(target_.embedding.dtype, target_.embedding.row(token), target_.sizes->n_embd, row.data());
    return {row.begin(), row.end()};
  }

  Vec Norm(const Vec& x, const std::string& name) const {
    double ss = 0;
    for (const double v : x) ss += v * v;
    const double r = 1.0 / std::sqrt(ss / static_cast<double>(x.size()) + eps_);
    Vec y;
    for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * r * static_cast<double>(d_[name][i]));
    return y;
  }

  Vec Linear(const Vec& x, const std::string& name, bool bias) const {
    const std::vector<float>& w = d_[name + ".weight"];
    const double* from = x.data();
    const size_t n = x.size();
    Vec y;
    for (size_t o = 0; o < w.size() / n; ++o) {
      double sum = bias ? static_cast<double>(d_[name + ".bias"][o]) : 0.0;
      const float* row =
          w.data() + o * n;  // sanitized builds spend their time here, and most of it in operator[]
      for (size_t i = 0; i < n; ++i) sum += static_cast<double>(row[i]) * from[i];
      y.push_back(sum);
    }
    return y;
  }

  void Rotate(Vec& x, int position) const {
    std::vector<float> cos_sin(static_cast<size_t>(rope_.n_rot()));
    rope_.Row(position, cos_sin.data());
    const auto half = static_cast<size_t>(rope_.n_rot() / 2), head_dim = static_cast<size_t>(heads_.head_dim);
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
    const auto head_dim = static_cast<size_t>(heads_.head_dim);
    Vec out(q.size(), 0.0);
    if (keys.empty()) return out;
    for (size_t h = 0; h < static_cast<size_t>(heads_.n_head); ++h) {
      const size_t at = h * head_dim,
                   kv = h / static_cast<size_t>(heads_.n_head / heads_.n_kv_head) * head_dim;
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

 protected:
  const DraftTensors& d_;
  const SharedParts& target_;
  const AttentionShape heads_;
  const RopeTable rope_;
  const double eps_;
};

inline Vec LogSoftmax(Vec logits) {
  double most = -1e300, sum = 0;
  for (const double x : logits) most = std::max(most, x);
  for (const double x : logits) sum += std::exp(x - most);
  for (double& x : logits) x -= most + std::log(sum);
  return logits;
}

}  // namespace longspec::testing
