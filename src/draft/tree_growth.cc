// SPDX-License-Identifier: Apache-2.0
#include "draft/tree_growth.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/largest.h"
#include "base/size.h"

namespace longspec {
namespace {

class Growth {
 public:
  Growth(const DraftBudget& budget, GrowthModel& model, GrowthReport* report)
      : max_nodes_(budget.max_nodes), max_depth_(budget.max_depth), model_(model), report_(report) {}

  DraftTask Beam(const std::vector<int>& widths);
  DraftTask BestFirst(int max_depth);
  DraftTask OptTree(const TreeShape& shape);
  DraftTask Eagle2(const TreeShape& shape);
  DraftTask Static(const std::vector<std::vector<int>>& paths);
  void Cut(TokenTree& tree) const;
  void SetRoot(int32_t token) { nodes_.push_back({.token = token}); }
  int n_candidates() const { return static_cast<int>(nodes_.size()) - 1; }

 private:
  struct Candidate {
    double log_prob;
    int32_t parent;
    int32_t token;
  };

  // Nodes of the newest level, or the root.
  std::vector<int32_t> Newest() const;
  // Of the newest level, those whose children may yet be among the best: a child scores no more than its
  // parent and loses ties, so it must beat the last of the best as they are now.
  std::vector<int32_t> Promising() const;
  DraftTask AddLevel(const std::vector<int32_t>& parents, int width);
  std::vector<double> BestScores() const;  // of the max_nodes_ best, descending

  const int max_nodes_, max_depth_;
  GrowthModel& model_;
  GrowthReport* const report_;
  std::vector<GrownNode> nodes_;  // level by level
  size_t level_begin_ = 0;        // of the newest level
  std::vector<std::vector<TokenScore>> next_;
  std::vector<Candidate> candidates_;
};

std::vector<int32_t> Growth::Newest() const {
  std::vector<int32_t> newest;
  for (size_t i = level_begin_; i < nodes_.size(); ++i) newest.push_back(static_cast<int32_t>(i));
  return newest;
}

std::vector<double> Growth::BestScores() const {
  std::vector<double> scores;
  for (size_t i = 1; i < nodes_.size(); ++i) scores.push_back(nodes_[i].log_prob);
  KeepLargest(scores, Z(max_nodes_));
  return scores;
}

std::vector<int32_t> Growth::Promising() const {
  std::vector<int32_t> promising = Newest();
  const std::vector<double> best = BestScores();
  if (best.size() < Z(max_nodes_)) return promising;
  std::erase_if(promising, [&](int32_t i) { return nodes_[Z(i)].log_prob <= best.back(); });
  return promising;
}

// The `width` best children of `parents`, exactly: the best of all lie among the best `width` of each.
DraftTask Growth::AddLevel(const std::vector<int32_t>& parents, int width) {
  LS_CO_TRY(co_await model_.Expand(nodes_, parents, width, next_));
  LS_CHECK(next_.size() == parents.size());
  if (report_ != nullptr) report_->rows.push_back(static_cast<int>(parents.size()));
  candidates_.clear();
  for (size_t p = 0; p < parents.size(); ++p) {
    const double before = nodes_[Z(parents[p])].log_prob;
    for (const TokenScore& next : next_[p]) {
      candidates_.push_back({before + std::min(next.log_prob, 0.0), parents[p], next.token});
    }
  }
  // Equal scores keep the order of (parent, rank).
  KeepLargest(candidates_, Z(width), &Candidate::log_prob);
  level_begin_ = nodes_.size();
  for (const Candidate& c : candidates_) {
    nodes_.push_back({c.token, c.parent, nodes_[Z(c.parent)].depth + 1, c.log_prob});
  }
  co_return Status();
}

DraftTask Growth::Beam(const std::vector<int>& widths) {
  const size_t n_levels = std::min(widths.size(), Z(max_depth_));
  for (size_t level = 0; level < n_levels; ++level) {
    const std::vector<int32_t> parents = level == 0 ? Newest() : Promising();
    if (parents.empty()) break;
    // No more than the budget can be among the best.
    LS_CO_TRY(co_await AddLevel(parents, std::min(widths[level], max_nodes_)));
  }
  co_return Status();
}

// Exactly the best nodes of the model's whole tree down to max_depth: a node is run if it is among the best
// of those known when its level is, and it stays among them or none of its children would be.
DraftTask Growth::BestFirst(int max_depth) {
  const int n_levels = std::min(max_depth, max_depth_);
  for (int level = 0; level < n_levels; ++level) {
    const std::vector<int32_t> parents = level == 0 ? Newest() : Promising();
    if (parents.empty()) break;
    LS_CO_TRY(co_await AddLevel(parents, max_nodes_));
  }
  co_return Status();
}

// OPT-Tree (arXiv 2406.17276) as released, but that nothing is run in vain: neither the level that is created
// only to be left out of the choice (with use_last_level it is, and takes part), nor nodes that cannot have a
// child among the best. The tree is the same.
DraftTask Growth::OptTree(const TreeShape& shape) {
  const std::vector<int32_t> root = Newest();
  LS_CO_TRY(co_await AddLevel(root, max_nodes_));
  double before = 0.0;
  for (int n_levels = 1;; ++n_levels) {
    double expected = 0.0;
    for (const double log_prob : BestScores()) expected += std::exp(log_prob);
    if (report_ != nullptr) report_->expected.push_back(expected);
    const bool go_on = expected - before > shape.threshold && n_levels + 1 < shape.max_depth;
    const bool may_add = n_levels < max_depth_ && n_levels < shape.max_depth;
    if (!may_add || (!go_on && !shape.use_last_level)) co_return Status();
    const std::vector<int32_t> parents = Promising();
    if (!parents.empty()) LS_CO_TRY(co_await AddLevel(parents, max_nodes_));
    if (!go_on) co_return Status();
    before = expected;
  }
}

// EAGLE-2 (arXiv 2406.16858) as released: K children of each of the K best of the last level, all
// of them candidates; ties go to the candidate found first. As above, what cannot have a child in the tree is
// not run.
DraftTask Growth::Eagle2(const TreeShape& shape) {
  const int n_levels = std::min(shape.n_loops + 1, max_depth_);
  std::vector<int32_t> beam = Newest();
  for (int level = 0; level < n_levels && !beam.empty(); ++level) {
    LS_CO_TRY(co_await model_.Expand(nodes_, beam, shape.top_k, next_));
    LS_CHECK(next_.size() == beam.size());
    if (report_ != nullptr) report_->rows.push_back(static_cast<int>(beam.size()));
    level_begin_ = nodes_.size();
    for (size_t p = 0; p < beam.size(); ++p) {
      const GrownNode before = nodes_[Z(beam[p])];
      for (const TokenScore& next : next_[p]) {
        nodes_.push_back(
            {next.token, beam[p], before.depth + 1, before.log_prob + std::min(next.log_prob, 0.0)});
      }
    }
    beam = Promising();
    KeepLargest(beam, Z(shape.top_k), [&](int32_t i) { return nodes_[Z(i)].log_prob; });
  }
  co_return Status();
}

// The same ranks every round, whatever their probabilities; a rank the model does not offer leaves its part
// of the tree out.
DraftTask Growth::Static(const std::vector<std::vector<int>>& paths) {
  std::vector<int32_t> placed(paths.size(), -1);  // the node of each path
  const auto parent_of = [&](const std::vector<int>& path) {
    if (path.size() == 1) return 0;
    const auto is_parent = [&](const std::vector<int>& p) {
      return p.size() + 1 == path.size() && std::equal(p.begin(), p.end(), path.begin());
    };
    return placed[Z(static_cast<int>(std::ranges::find_if(paths, is_parent) - paths.begin()))];
  };
  for (size_t begin = 0, end = 0; begin < paths.size() && paths[begin].size() <= Z(max_depth_); begin = end) {
    int n_ranks = 0;
    std::vector<int32_t> parents;
    for (; end < paths.size() && paths[end].size() == paths[begin].size(); ++end) {
      const int32_t parent = parent_of(paths[end]);
      if (parent < 0) continue;
      n_ranks = std::max(n_ranks, paths[end].back() + 1);
      if (parents.empty() || parents.back() != parent) parents.push_back(parent);
    }
    if (parents.empty()) co_return Status();
    LS_CO_TRY(co_await model_.Expand(nodes_, parents, n_ranks, next_));
    if (report_ != nullptr) report_->rows.push_back(static_cast<int>(parents.size()));
    for (size_t i = begin; i < end; ++i) {
      const int32_t parent = parent_of(paths[i]);
      if (parent < 0) continue;
      const std::vector<TokenScore>& next =
          next_[Z(static_cast<int>(std::ranges::find(parents, parent) - parents.begin()))];
      const size_t rank = Z(paths[i].back());
      if (rank >= next.size()) continue;
      placed[i] = static_cast<int32_t>(nodes_.size());
      const GrownNode& before = nodes_[Z(parent)];
      nodes_.push_back(
          {next[rank].token, parent, before.depth + 1, before.log_prob + std::min(next[rank].log_prob, 0.0)});
    }
  }
  co_return Status();
}

void Growth::Cut(TokenTree& tree) const {
  std::vector<int32_t> order;
  for (size_t i = 1; i < nodes_.size(); ++i) order.push_back(static_cast<int32_t>(i));
  KeepLargest(order, Z(max_nodes_), [&](int32_t i) { return nodes_[Z(i)].log_prob; });
  std::sort(order.begin(), order.end());
  std::vector<int> placed(nodes_.size(), -1);
  placed[0] = 0;
  for (const int32_t i : order) {
    const GrownNode& node = nodes_[Z(i)];
    const int parent = placed[Z(node.parent)];
    LS_CHECK(parent >= 0);
    placed[Z(i)] = tree.AddChild(parent, node.token, static_cast<float>(std::exp(node.log_prob)));
  }
}

DraftTask Grow(const TreeShape& shape, DraftBudget budget, GrowthModel& model, TokenTree& tree,
               GrowthReport* report) {
  LS_CHECK(tree.size() == 1);
  if (budget.max_nodes <= 0 || budget.max_depth <= 0) co_return Status();
  if (shape.kind == TreeShape::Kind::kEagle2) budget.max_nodes = std::min(budget.max_nodes, shape.total);
  Growth growth(budget, model, report);
  growth.SetRoot(tree.node(0).token);
  switch (shape.kind) {
    case TreeShape::Kind::kBeam:
      LS_CO_TRY(co_await growth.Beam(shape.widths));
      break;
    case TreeShape::Kind::kBestFirst:
      LS_CO_TRY(co_await growth.BestFirst(shape.max_depth));
      break;
    case TreeShape::Kind::kOptTree:
      LS_CO_TRY(co_await growth.OptTree(shape));
      break;
    case TreeShape::Kind::kEagle2:
      LS_CO_TRY(co_await growth.Eagle2(shape));
      break;
    case TreeShape::Kind::kStatic:
      LS_CO_TRY(co_await growth.Static(shape.paths));
      break;
  }
  if (report != nullptr) report->n_candidates = growth.n_candidates();
  growth.Cut(tree);
  co_return Status();
}

}  // namespace

DraftTask GrowTree(const TreeShape& shape, const DraftBudget& budget, GrowthModel& model, TokenTree& tree,
                   GrowthReport* report) {
  return Grow(shape, budget, model, tree, report);
}

}  // namespace longspec
