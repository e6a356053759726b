// SPDX-License-Identifier: Apache-2.0
#include "train/feature_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/status_macros.h"
#include "tensor/half.h"

namespace longspec::train {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

Status CheckSequence(const FeatureShard& shard, const FeatureSequence& s) {
  const auto n = static_cast<int64_t>(s.tokens.size());
  if (n > shard.header().target.n_ctx) {
    return InvalidArgument(shard.path() + ": a sequence of " + std::to_string(n) +
                           " tokens is longer than the model's context of " +
                           std::to_string(shard.header().target.n_ctx));
  }
  for (int64_t i = 0; i < n; ++i) {
    if (s.positions[Z(i)] == i) continue;
    return Unsupported(shard.path() + ": positions must count from 0 in every sequence");
  }
  return {};
}

bool Teaches(const FeatureSequence& s) { return std::ranges::count(s.loss.subspan(1), 1) > 0; }

// Turns what follows a token into a row of targets.
class Labeller {
 public:
  Labeller(const FeatureSet& set, const LabelOptions& options)
      : options_(options), top_k_(options.distill > 0.0 ? set.top_k() : 0) {
    if (options.vocab.empty()) return;
    index_.assign(Z(set.target().n_vocab), -1);
    for (size_t i = 0; i < options.vocab.size(); ++i) index_[Z(options.vocab[i])] = static_cast<int64_t>(i);
  }

  int width() const { return 1 + top_k_; }

  // Of token t of `s`. Appends width() ids and weights; false, and nothing, if it has no target.
  bool Append(const FeatureSequence& s, size_t t, std::vector<int64_t>* ids,
              std::vector<float>* weights) const {
    if (t + 1 >= s.tokens.size() || s.loss[t + 1] != 1) return false;
    const size_t begin = weights->size();
    double sum = 0.0;
    const auto add = [&](int32_t token, double weight) {
      const int64_t index = index_.empty() ? token : index_[Z(token)];
      ids->push_back(std::max<int64_t>(index, 0));
      weights->push_back(index < 0 ? 0.0F : static_cast<float>(weight));
      sum += static_cast<double>(weights->back());
    };
    add(s.tokens[t + 1], 1.0 - options_.distill);
    double mass = 0.0;
    for (size_t k = 0; k < Z(top_k_); ++k) mass += Probability(s, t, k);
    for (size_t k = 0; k < Z(top_k_); ++k) {
      add(s.top_ids[t * Z(top_k_) + k], options_.distill * Probability(s, t, k) / mass);
    }
    if (sum <= 0.0) {
      ids->resize(begin);
      weights->resize(begin);
      return false;
    }
    for (size_t i = begin; i < weights->size(); ++i) (*weights)[i] /= static_cast<float>(sum);
    return true;
  }

 private:
  double Probability(const FeatureSequence& s, size_t t, size_t k) const {
    return std::exp(static_cast<double>(HalfToFloat(s.top_log_probs[t * Z(top_k_) + k])));
  }

  const LabelOptions& options_;
  const int top_k_;
  std::vector<int64_t> index_;  // by token: row of the reduced head, or -1
};

at::Tensor Halves(std::span<const uint16_t> from, int64_t n, const FeatureTarget& t) {
  // The span is only read.
  void* data = const_cast<uint16_t*>(from.data());
  return at::from_blob(data, {n, t.n_head_kv, t.head_dim}, at::kHalf);
}

}  // namespace

Result<FeatureSet> FeatureSet::Open(std::span<const std::string> folders) {
  FeatureSet set;
  for (const std::string& folder : folders) {
    LS_ASSIGN(const auto shards, OpenFeatureShards(folder));
    const FeatureHeader& next = shards.front()->header();
    if (!set.shards_.empty() && (next.target != set.target() || next.top_k != set.top_k())) {
      return InvalidArgument(folder + ": features of another model or with another --top-k than " +
                             folders.front());
    }
    set.shards_.insert(set.shards_.end(), shards.begin(), shards.end());
  }
  for (const auto& shard : set.shards_) {
    for (int i = 0; i < shard->n_sequences(); ++i) {
      const FeatureSequence s = shard->sequence(i);
      LS_TRY(CheckSequence(*shard, s));
      if (!Teaches(s)) continue;
      const auto n = static_cast<int64_t>(s.tokens.size());
      set.sequences_.push_back(s);
      set.n_tokens_ += n;
      set.longest_ = std::max(set.longest_, n);
      set.has_short_ |= n <= kAnchorOffsetLength;
    }
  }
  if (!set.sequences_.empty()) return set;
  return InvalidArgument((folders.empty() ? std::string("no folder") : folders.front()) +
                         ": no sequence has anything to learn");
}

std::vector<int64_t> FeatureSet::lengths() const {
  std::vector<int64_t> lengths;
  for (const FeatureSequence& s : sequences_) lengths.push_back(static_cast<int64_t>(s.tokens.size()));
  return lengths;
}

std::vector<int64_t> FeatureSet::FrequentTokens(int n, double distill) const {
  const size_t k = distill > 0.0 ? Z(top_k()) : 0;
  std::vector<double> count(Z(target().n_vocab));
  for (const FeatureSequence& s : sequences_) {
    for (size_t i = 1; i < s.tokens.size(); ++i) {
      if (s.loss[i] != 1) continue;
      count[Z(s.tokens[i])] += 1.0 - distill;
      for (size_t j = (i - 1) * k; j < i * k; ++j) {
        count[Z(s.top_ids[j])] += distill * std::exp(static_cast<double>(HalfToFloat(s.top_log_probs[j])));
      }
    }
  }
  std::vector<int64_t> tokens(count.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::ranges::stable_sort(tokens, [&](int64_t a, int64_t b) { return count[Z(a)] > count[Z(b)]; });
  tokens.resize(std::min(tokens.size(), Z(n)));
  std::ranges::sort(tokens);
  return tokens;
}

Batch MakeBatch(const FeatureSet& set, std::span<const int> sequences, const LabelOptions& options) {
  const FeatureTarget& t = set.target();
  const auto n = static_cast<int64_t>(sequences.size());
  int64_t length = 0;
  for (const int i : sequences)
    length = std::max(length, static_cast<int64_t>(set.sequence(i).tokens.size()));
  Batch batch;
  batch.tokens = at::zeros({n, length}, at::kLong);
  batch.keys = at::zeros({n, length, t.n_head_kv, t.head_dim}, at::kFloat);
  batch.values = at::zeros_like(batch.keys);
  const Labeller labeller(set, options);
  std::vector<int64_t> rows, ids;
  std::vector<float> weights;
  for (int64_t b = 0; b < n; ++b) {
    const FeatureSequence& s = set.sequence(sequences[Z(b)]);
    const auto m = static_cast<int64_t>(s.tokens.size());
    batch.n_tokens += m;
    auto* token = batch.tokens.data_ptr<int64_t>() + b * length;
    for (int64_t i = 0; i < m; ++i) {
      token[i] = s.tokens[Z(i)];
      if (labeller.Append(s, Z(i), &ids, &weights)) rows.push_back(b * length + i);
    }
    batch.keys[b].slice(0, 0, m).copy_(Halves(s.kept.keys, m, t));
    batch.values[b].slice(0, 0, m).copy_(Halves(s.kept.values, m, t));
  }
  const auto n_rows = static_cast<int64_t>(rows.size());
  batch.rows = at::tensor(rows, at::kLong);
  batch.targets.ids = at::tensor(ids, at::kLong).view({n_rows, labeller.width()});
  batch.targets.weights = at::tensor(weights, at::kFloat).view({n_rows, labeller.width()});
  return batch;
}

}  // namespace longspec::train
