// SPDX-License-Identifier: Apache-2.0
//
// A drafter for tests that knows the true text: it proposes random trees in which exactly a wanted number of
// levels is right, every such number in turn, with wrong nodes at random places and in random order.
#pragma once

#include <algorithm>
#include <new>
#include <vector>

#include "base/counter_rng.h"
#include "draft/drafter.h"

namespace longspec::testing {

class TreeDrafter final : public Drafter {
 public:
  // `truth` is the prompt and the text after it. Wrong nodes: up to n_wrong per round.
  TreeDrafter(std::vector<int32_t> truth, int vocab, int n_wrong, uint64_t seed)
      : truth_(std::move(truth)),
        vocab_(vocab),
        n_wrong_(n_wrong),
        rng_{.seed = seed, .purpose = RngPurpose::kTest} {}

  std::string_view name() const override { return "tree"; }
  Taps taps() const override { return {.hidden_layers = {1, 3}, .final_hidden = true}; }
  Status Follow(std::span<const int32_t> committed) override {
    n_prefilled = static_cast<int>(committed.size());
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    if (!propose_status.ok()) return propose_status;
    if (propose_throws) throw std::bad_alloc();
    ++round_;
    draw_ = 0;
    const auto known = static_cast<int>(truth_.size()) - static_cast<int>(committed.size());
    const int most = std::min({budget.max_depth, budget.max_nodes, known});
    n_right = most <= 0 ? 0 : static_cast<int>(round_ % static_cast<uint64_t>(most + 1));
    std::vector<int> right = {0};  // nodes of the true path
    int wrong_left = std::min(n_wrong_, budget.max_nodes - n_right);
    while (wrong_left > 0 || static_cast<int>(right.size()) <= n_right) {
      const bool path_done = static_cast<int>(right.size()) > n_right;
      if (!path_done && (wrong_left <= 0 || Below(2) == 0)) {
        right.push_back(tree.AddChild(right.back(), truth_[committed.size() + right.size() - 1]));
      } else {
        AddWrong(budget, committed.size(), right, tree);
        --wrong_left;
      }
    }
    return {};
  }

  Status Read(const CommittedRows& rows) override {
    n_rows_read += static_cast<int>(rows.rows.size());
    if (rows.tree != nullptr) accepted_sizes.push_back(rows.n_new);
    n_committed = static_cast<int>(rows.sequence.size());
    if (read_throws) throw std::bad_alloc();
    return read_status;
  }

  int n_right = 0;  // levels of the last tree that are right
  int n_prefilled = 0, n_committed = 0, n_rows_read = 0;
  std::vector<int> accepted_sizes;
  Status propose_status, read_status;
  bool propose_throws = false, read_throws = false;  // that there is no memory

 private:
  int Below(int n) { return static_cast<int>(rng_.Uniform(round_, draw_++) * n); }

  // A node anywhere that does not lengthen the true path.
  void AddWrong(const DraftBudget& budget, size_t n_before, const std::vector<int>& right, TokenTree& tree) {
    const int parent = Below(tree.size());
    if (tree.node(parent).depth >= budget.max_depth) return;
    const auto token = static_cast<int32_t>(Below(vocab_));
    const auto depth = static_cast<size_t>(tree.node(parent).depth);
    const bool on_path = std::find(right.begin(), right.end(), parent) != right.end();
    const bool is_true = n_before + depth < truth_.size() && truth_[n_before + depth] == token;
    if (!on_path || !is_true) tree.AddChild(parent, token);
  }

  std::vector<int32_t> truth_;
  int vocab_;
  int n_wrong_;
  RngStream rng_;
  uint64_t round_ = 0;
  uint32_t draw_ = 0;
};

}  // namespace longspec::testing
