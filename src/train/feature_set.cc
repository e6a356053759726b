// SPDX-License-Identifier: Apache-2.0
#include "train/feature_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/largest.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "tensor/half.h"
#include "train/target_states.h"

namespace longspec::train {
namespace {

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
      : options_(options),
        states_(options.distill > 0.0 && set.has_final_hidden()),
        top_k_(options.distill > 0.0 && !states_ ? set.top_k() : 0) {
    if (options.vocab.empty()) return;
    index_.assign(Z(set.target().n_vocab), -1);
    for (size_t i = 0; i < options.vocab.size(); ++i) index_[Z(options.vocab[i])] = static_cast<int64_t>(i);
  }

  // Whether the target's distribution is to come from its final hidden states.
  bool states() const { return states_; }
  int width() const { return 1 + top_k_; }

  // Of token t of `s`. Appends width() ids and weights and a share of that distribution; false, and nothing,
  // if it has no target.
  bool Append(const FeatureSequence& s, size_t t, std::vector<int64_t>* ids, std::vector<float>* weights,
              std::vector<float>* soft) const {
    if (t + 1 >= s.tokens.size() || s.loss[t + 1] != 1) return false;
    const size_t begin = weights->size();
    const double own = states_ ? options_.distill : 0.0;
    double sum = own;
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
    soft->push_back(static_cast<float>(own / sum));
    return true;
  }

 private:
  double Probability(const FeatureSequence& s, size_t t, size_t k) const {
    return std::exp(static_cast<double>(HalfToFloat(s.top_log_probs[t * Z(top_k_) + k])));
  }

  const LabelOptions& options_;
  const bool states_;
  const int top_k_;
  std::vector<int64_t> index_;  // by token: row of the reduced head, or -1
};

// 16-bit numbers of a shard as f32 (n, width).
at::Tensor Numbers(std::span<const uint16_t> from, int64_t n, DType type) {
  // The span is only read.
  void* data = const_cast<uint16_t*>(from.data());
  const at::ScalarType scalar = type == DType::kBF16 ? at::kBFloat16 : at::kHalf;
  return at::from_blob(data, {n, static_cast<int64_t>(from.size()) / n}, scalar).to(at::kFloat);
}

// The first tensor that is needed and not kept, as --keep names it; empty: none.
std::string Missing(const ShardNeeds& needs, const FeatureKeep& keep) {
  if (needs.keys_values && !keep.kv) return "kv";
  if (needs.final_hidden && !keep.final_hidden) return "final";
  for (const int layer : needs.layers) {
    if (!std::ranges::binary_search(keep.hidden_layers, layer)) return "hidden:" + std::to_string(layer);
  }
  return {};
}

}  // namespace

Result<FeatureSet> FeatureSet::Open(std::span<const std::string> folders) {
  FeatureSet set;
  std::vector<size_t> shard_ends;
  for (const std::string& folder : folders) {
    LS_ASSIGN(const auto shards, OpenFeatureShards(folder));
    const FeatureHeader& next = shards.front()->header();
    if (!set.shards_.empty() && (next.target != set.target() || next.top_k != set.top_k())) {
      return InvalidArgument(folder + ": features of another model or with another --top-k than " +
                             folders.front());
    }
    if (!set.shards_.empty() && next.keep.any() == set.only_tokens_) {
      return InvalidArgument(folder + ": holds --keep " + FormatFeatureKeep(next.keep) + ", and " +
                             folders.front() + " --keep " +
                             FormatFeatureKeep(set.shards_.front()->header().keep) +
                             "; tokens alone do not go together with more");
    }
    set.only_tokens_ = !next.keep.any();
    set.shards_.insert(set.shards_.end(), shards.begin(), shards.end());
    shard_ends.push_back(set.shards_.size());
  }
  size_t at = 0;
  for (const size_t end : shard_ends) {
    for (; at < end; ++at) LS_TRY(set.AddSequences(*set.shards_[at]));
    set.folder_ends_.push_back(set.n_sequences());
  }
  if (!set.sequences_.empty()) return set;
  return InvalidArgument((folders.empty() ? std::string("no folder") : folders.front()) +
                         ": no sequence has anything to learn");
}

Status FeatureSet::AddSequences(const FeatureShard& shard) {
  for (int i = 0; i < shard.n_sequences(); ++i) {
    const FeatureSequence s = shard.sequence(i);
    LS_TRY(CheckSequence(shard, s));
    if (!Teaches(s)) continue;
    const auto n = static_cast<int64_t>(s.tokens.size());
    sequences_.push_back(s);
    keeps_.push_back(&shard.header().keep);
    n_tokens_ += n;
    longest_ = std::max(longest_, n);
    has_short_ |= n <= kAnchorOffsetLength;
  }
  return {};
}

std::vector<int64_t> FeatureSet::lengths() const {
  std::vector<int64_t> lengths;
  for (const FeatureSequence& s : sequences_) lengths.push_back(static_cast<int64_t>(s.tokens.size()));
  return lengths;
}

Status FeatureSet::Has(const ShardNeeds& needs) const {
  if (only_tokens_) return {};
  for (const auto& shard : shards_) {
    const std::string missing = Missing(needs, shard->header().keep);
    if (missing.empty()) continue;
    return InvalidArgument(shard->path() + ": holds " + FormatFeatureKeep(shard->header().keep) +
                           ", and this kind of draft needs " + missing +
                           " too; make the features with longspec features --keep");
  }
  return {};
}

std::string FeatureSet::Digest() const {
  std::string all;
  for (const auto& shard : shards_) {
    const FeatureHeader& h = shard->header();
    all += h.source + '\n' + FormatFeatureKeep(h.keep) + ' ' + std::string(Info(h.keep.type).name) + ' ' +
           std::to_string(h.top_k) + ' ' + std::to_string(shard->n_sequences()) + ' ' +
           std::to_string(shard->n_tokens()) + '\n';
  }
  return ToHex(HashOf(std::as_bytes(std::span(all)))).substr(0, 8);
}

bool FeatureSet::has_final_hidden() const { return Has({.final_hidden = true}).ok(); }

std::vector<int64_t> FeatureSet::FrequentTokens(int n, double distill,
                                                std::span<const int32_t> further) const {
  const size_t k = distill > 0.0 ? Z(top_k()) : 0;
  if (k == 0) distill = 0.0;
  std::vector<double> count(Z(target().n_vocab));
  int first = 0;
  for (const int end : folder_ends_) {
    std::vector<double> here(count.size());
    double sum = 0.0;
    for (int at = first; at < end; ++at) {
      const FeatureSequence& s = sequence(at);
      for (size_t i = 1; i < s.tokens.size(); ++i) {
        if (s.loss[i] != 1) continue;
        sum += 1.0;
        here[Z(s.tokens[i])] += 1.0 - distill;
        for (size_t j = (i - 1) * k; j < i * k; ++j) {
          here[Z(s.top_ids[j])] += distill * std::exp(static_cast<double>(HalfToFloat(s.top_log_probs[j])));
        }
      }
    }
    for (size_t i = 0; i < count.size(); ++i) count[i] += here[i] / std::max(sum, 1.0);
    first = end;
  }
  // Less than any share that is seen.
  constexpr double kUnseen = 1e-12;
  for (size_t i = 0; i < further.size(); ++i) {
    double& of = count[Z(further[i])];
    if (of == 0.0) of = kUnseen / static_cast<double>(i + 1);
  }
  std::vector<int64_t> tokens(count.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  KeepLargest(tokens, Z(n), [&](int64_t token) { return count[Z(token)]; });
  std::ranges::sort(tokens);
  return tokens;
}

Batch MakeBatch(const FeatureSet& set, std::span<const int> sequences, const ShardNeeds& needs,
                const LabelOptions& options) {
  const FeatureTarget& t = set.target();
  const Labeller labeller(set, options);
  Batch batch;
  std::vector<int64_t> tokens, rows, labels, ids;
  std::vector<float> weights, soft;
  std::vector<at::Tensor> keys, values, final_hidden;
  std::map<int, std::vector<at::Tensor>> hidden;
  for (const int sequence : sequences) {
    const FeatureSequence& s = set.sequence(sequence);
    const FeatureKeep& keep = set.keep(sequence);
    const auto n = static_cast<int64_t>(s.tokens.size());
    const auto numbers = [&](std::span<const uint16_t> from) { return Numbers(from, n, keep.type); };
    for (int64_t i = 0; i < n; ++i) {
      const bool labelled = labeller.Append(s, Z(i), &ids, &weights, &soft);
      labels.push_back(labelled ? static_cast<int64_t>(rows.size()) : -1);
      if (labelled) rows.push_back(batch.n() + i);
    }
    tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
    batch.ends.push_back(batch.n() + n);
    if (set.only_tokens()) continue;
    if (needs.keys_values) {
      keys.push_back(numbers(s.kept.keys));
      values.push_back(numbers(s.kept.values));
    }
    if (needs.final_hidden || labeller.states()) final_hidden.push_back(numbers(s.kept.final_hidden));
    for (const int layer : std::set(needs.layers.begin(), needs.layers.end())) {
      const auto at = std::ranges::lower_bound(keep.hidden_layers, layer) - keep.hidden_layers.begin();
      hidden[layer].push_back(numbers(s.kept.hidden[Z(at)]));
    }
  }
  const auto heads = [&](const std::vector<at::Tensor>& parts) {
    return at::cat(parts, 0).view({-1, t.n_head_kv, t.head_dim});
  };
  if (!keys.empty()) {
    batch.keys = heads(keys);
    batch.values = heads(values);
  }
  if (!final_hidden.empty()) batch.final_hidden = at::cat(final_hidden, 0);
  for (const auto& [layer, parts] : hidden) batch.hidden[layer] = at::cat(parts, 0);
  const auto n_rows = static_cast<int64_t>(rows.size());
  batch.tokens = at::tensor(tokens, at::kLong);
  batch.rows = at::tensor(rows, at::kLong);
  batch.labels = at::tensor(labels, at::kLong);
  batch.targets.ids = at::tensor(ids, at::kLong).view({n_rows, labeller.width()});
  batch.targets.weights = at::tensor(weights, at::kFloat).view({n_rows, labeller.width()});
  ShardNeeds all = needs;
  all.final_hidden |= labeller.states();
  if (set.only_tokens() && all.any()) set.states()->Compute(all, &batch);
  if (labeller.states()) {
    batch.targets.states = batch.final_hidden.index_select(0, batch.rows.to(batch.final_hidden.device()));
    batch.targets.soft = at::tensor(soft, at::kFloat);
  }
  return batch;
}

}  // namespace longspec::train
