// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <set>
#include <span>
#include <utility>

#include "base/size.h"
#include "train/pass.h"

namespace longspec::train {
namespace {

constexpr int64_t kFirstBucket = 512;
constexpr int64_t kValidatedAtOnce = 256;
constexpr int kRanks = 16;  // a draft's choices that a tree may hold at a place

// 0 for positions below 512, 1 below 1024, 2 below 2048, ...
size_t BucketOf(int64_t position) {
  size_t bucket = 0;
  for (int64_t end = kFirstBucket; position >= end; end *= 2) ++bucket;
  return bucket;
}

// A row that has a label: the rank of what is right among the draft's choices, by lag - 1; kRanks: further.
struct SeenRow {
  int sequence = 0;
  int64_t position = 0;
  double loss = 0.0;
  std::array<int, kValidatedLags> ranks{};
};

// The token that the draft should choose at each row with a label.
std::vector<int64_t> ExpectedTokens(const FeatureSet& set, const FeatureSequence& s, const PlacedBatch& batch,
                                    const at::Tensor& head) {
  const at::Tensor rows = batch.rows.to(at::kCPU);
  std::vector<int64_t> expected;
  if (set.top_k() == 0 && batch.final_hidden.defined()) {
    for (int64_t begin = 0; begin < rows.numel(); begin += kValidatedAtOnce) {
      const at::Tensor part = batch.rows.slice(0, begin, begin + kValidatedAtOnce);
      const at::Tensor states = batch.final_hidden.index_select(0, part);
      const at::Tensor best = at::matmul(states, head.t()).argmax(1).to(at::kCPU);
      const auto* tokens = best.const_data_ptr<int64_t>();
      expected.insert(expected.end(), tokens, tokens + best.numel());
    }
    return expected;
  }
  for (int64_t i = 0; i < rows.numel(); ++i) {
    const size_t row = Z(rows.const_data_ptr<int64_t>()[i]);
    expected.push_back(set.top_k() > 0 ? s.top_ids[row * Z(set.top_k())] : s.tokens[row + 1]);
  }
  return expected;
}

// As rows of the draft's head; -1 of tokens it does not have.
std::vector<int64_t> ToChoices(std::vector<int64_t> tokens, const std::vector<int64_t>& vocab) {
  if (vocab.empty()) return tokens;
  for (int64_t& token : tokens) {
    const auto it = std::ranges::lower_bound(vocab, token);
    token = it != vocab.end() && *it == token ? it - vocab.begin() : -1;
  }
  return tokens;
}

at::Tensor Losses(const at::Tensor& logits, const Targets& targets, const at::Tensor& head, int64_t begin,
                  int64_t end) {
  const at::Tensor ids = targets.ids.slice(0, begin, end), weights = targets.weights.slice(0, begin, end);
  at::Tensor expected = (logits.gather(1, ids) * weights).sum(1);
  if (targets.states.defined()) {
    const at::Tensor label = at::matmul(targets.states.slice(0, begin, end), head.t());
    expected = expected + at::linalg_vecdot(label.softmax(1), logits, 1) * targets.soft.slice(0, begin, end);
  }
  return (logits.logsumexp(1) - expected).to(at::kCPU, at::kDouble);
}

// Ranks at that lag, and the loss at the first.
void AddLag(const Trainee& trainee, const at::Tensor& hidden, const Targets& targets,
            const std::vector<int64_t>& choices, int lag, std::span<SeenRow> seen) {
  const at::Tensor head = trainee.Head(lag);
  for (int64_t begin = 0; begin < hidden.size(0); begin += kValidatedAtOnce) {
    const int64_t end = std::min(hidden.size(0), begin + kValidatedAtOnce);
    const at::Tensor logits = at::matmul(hidden.slice(0, begin, end), head.t());
    const at::Tensor choice =
        at::tensor(std::span(choices).subspan(Z(begin), Z(end - begin)), at::kLong).to(logits.device());
    // Equal ones count as better, and so do those that are no numbers: a draft that says nothing is wrong.
    const at::Tensor right = logits.gather(1, choice.clamp_min(0).unsqueeze(1));
    const at::Tensor rank = logits.lt(right).logical_not().sum(1).sub(1).to(at::kCPU);
    const at::Tensor loss =
        lag == 1 ? Losses(logits, targets, trainee.setup().frozen.head, begin, end) : at::Tensor();
    for (int64_t i = begin; i < end; ++i) {
      SeenRow& row = seen[Z(i)];
      const int64_t better = rank.const_data_ptr<int64_t>()[i - begin];
      row.ranks[Z(lag - 1)] =
          choices[Z(i)] < 0 ? kRanks : static_cast<int>(std::min<int64_t>(better, kRanks));
      if (lag == 1) row.loss = loss.const_data_ptr<double>()[i - begin];
    }
  }
}

// A static tree as it is walked: the child of each node by rank.
class Tree {
 public:
  explicit Tree(const std::vector<std::vector<int>>& paths) : paths_(paths.begin(), paths.end()) {}

  // Nodes that are right in a row, from row `at` on. `at` has kValidatedLags rows.
  double Walk(std::span<const SeenRow> rows) const {
    std::vector<int> path;
    for (size_t depth = 0; depth < rows.size(); ++depth) {
      path.push_back(rows[depth].ranks[depth]);
      if (!paths_.contains(path)) return static_cast<double>(depth);
    }
    return static_cast<double>(rows.size());
  }

 private:
  std::set<std::vector<int>> paths_;
};

// rates[j][r]: how often rank r is right at lag j + 1.
std::vector<std::vector<double>> Rates(const std::vector<SeenRow>& rows) {
  std::vector<std::vector<double>> rates(kValidatedLags, std::vector<double>(kRanks));
  for (const SeenRow& row : rows) {
    for (size_t j = 0; j < kValidatedLags; ++j) {
      if (row.ranks[j] < kRanks) rates[j][Z(row.ranks[j])] += 1.0 / static_cast<double>(rows.size());
    }
  }
  return rates;
}

// Sums while rows are added, means after Finish.
class Counts {
 public:
  explicit Counts(const std::vector<SeenRow>& rows)
      : chain_({{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}}),
        tree_8_(BestTree(Rates(rows), 8)),
        tree_16_(BestTree(Rates(rows), 16)) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t last = i + kValidatedLags - 1;
      const bool followed = last < rows.size() && rows[last].sequence == rows[i].sequence &&
                            rows[last].position == rows[i].position + kValidatedLags - 1;
      Sums& bucket = Bucket(rows[i].position);
      for (Sums* to : {&all_, &bucket}) {
        Add(rows[i], to);
        if (followed) AddWalks(std::span(rows).subspan(i, kValidatedLags), to);
      }
    }
  }

  Validation Finish() {
    if (!buckets_.empty()) all_.bucket.end = buckets_.back().bucket.end;
    Validation validation = {.all = Mean(all_), .buckets = {}};
    for (const Sums& sums : buckets_) {
      if (sums.bucket.rows > 0) validation.buckets.push_back(Mean(sums));
    }
    return validation;
  }

 private:
  struct Sums {
    ValidationBucket bucket = {.agreement = std::vector<double>(kValidatedLags),
                               .top_4 = std::vector<double>(kValidatedLags)};
    int64_t walks = 0;
  };

  Sums& Bucket(int64_t position) {
    while (buckets_.size() <= BucketOf(position)) {
      const int64_t begin = buckets_.empty() ? 0 : buckets_.back().bucket.end;
      buckets_.emplace_back();
      buckets_.back().bucket.begin = begin;
      buckets_.back().bucket.end = begin == 0 ? kFirstBucket : 2 * begin;
    }
    return buckets_[BucketOf(position)];
  }

  static void Add(const SeenRow& row, Sums* to) {
    ++to->bucket.rows;
    to->bucket.loss += row.loss;
    for (size_t j = 0; j < kValidatedLags; ++j) {
      to->bucket.agreement[j] += row.ranks[j] == 0 ? 1.0 : 0.0;
      to->bucket.top_4[j] += row.ranks[j] < 4 ? 1.0 : 0.0;
    }
  }

  void AddWalks(std::span<const SeenRow> rows, Sums* to) const {
    ++to->walks;
    to->bucket.accepted.chain += chain_.Walk(rows);
    to->bucket.accepted.tree_8 += tree_8_.Walk(rows);
    to->bucket.accepted.tree_16 += tree_16_.Walk(rows);
  }

  static ValidationBucket Mean(const Sums& sums) {
    ValidationBucket mean = sums.bucket;
    const double rows = std::max(1.0, static_cast<double>(mean.rows));
    const double walks = std::max(1.0, static_cast<double>(sums.walks));
    mean.loss /= rows;
    for (double& share : mean.agreement) share /= rows;
    for (double& share : mean.top_4) share /= rows;
    for (double* length : {&mean.accepted.chain, &mean.accepted.tree_8, &mean.accepted.tree_16})
      *length /= walks;
    return mean;
  }

  const Tree chain_, tree_8_, tree_16_;
  Sums all_;
  std::vector<Sums> buckets_;
};

}  // namespace

std::vector<std::vector<int>> BestTree(const std::vector<std::vector<double>>& rates, int n_nodes) {
  using Node = std::pair<double, std::vector<int>>;
  // Of equal chances the smaller ranks.
  const auto later = [](const Node& a, const Node& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  std::priority_queue<Node, std::vector<Node>, decltype(later)> open(later);
  const auto open_children = [&](double chance, const std::vector<int>& path) {
    if (path.size() == rates.size()) return;
    for (size_t rank = 0; rank < rates[path.size()].size(); ++rank) {
      std::vector<int> child = path;
      child.push_back(static_cast<int>(rank));
      open.emplace(chance * rates[path.size()][rank], std::move(child));
    }
  };
  std::vector<std::vector<int>> paths;
  open_children(1.0, {});
  while (!open.empty() && paths.size() < Z(n_nodes)) {
    const Node node = open.top();
    open.pop();
    paths.push_back(node.second);
    open_children(node.first, node.second);
  }
  return paths;
}

Validator::Validator(const FeatureSet& set, const ShardNeeds& needs, const LabelOptions& labels)
    : set_(set), needs_(needs), labels_(labels), choices_(Z(set.n_sequences())) {
  needs_.final_hidden |= set.has_final_hidden();
}

Validation Validator::Look(const Trainee& trainee) {
  const at::NoGradGuard no_grad;
  const FrozenHeads& frozen = trainee.setup().frozen;
  std::vector<SeenRow> seen;
  for (int i = 0; i < set_.n_sequences(); ++i) {
    const PlacedBatch batch =
        PlaceBatch(MakeBatch(set_, std::span(&i, 1), needs_, labels_), frozen, set_.target(), {});
    const int64_t n = batch.rows.numel();
    if (n == 0) continue;
    // The target's choice costs a product with its whole head, once.
    std::vector<int64_t>& choices = choices_[Z(i)];
    if (choices.empty()) {
      choices = ToChoices(ExpectedTokens(set_, set_.sequence(i), batch, frozen.whole_head), labels_.vocab);
    }
    const size_t first = seen.size();
    const at::Tensor positions = batch.rows.to(at::kCPU);
    for (int64_t row = 0; row < n; ++row) {
      seen.push_back({.sequence = i, .position = positions.const_data_ptr<int64_t>()[row]});
    }
    const std::vector<at::Tensor> states = trainee.Chain(batch, kValidatedLags);
    for (int lag = 1; lag <= kValidatedLags; ++lag) {
      const at::Tensor hidden = states[Z(lag - 1)].index_select(0, batch.rows);
      AddLag(trainee, hidden, batch.targets, choices, lag, std::span(seen).subspan(first));
    }
  }
  return Counts(seen).Finish();
}

}  // namespace longspec::train
