// SPDX-License-Identifier: Apache-2.0
#include "bench/forced_trees.h"

#include <algorithm>

#include "base/counter_rng.h"

namespace longspec {
namespace {

class ForcedTreeDrafter final : public Drafter {
 public:
  ForcedTreeDrafter(std::vector<int32_t> answer, int vocab_size, uint64_t seed)
      : answer_(std::move(answer)), vocab_size_(vocab_size), rng_{seed, 0, RngPurpose::kTest} {}

  std::string_view name() const override { return "forced"; }

  Status Follow(std::span<const int32_t> committed) override {
    prompt_length_ = committed.size();
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    const size_t done = committed.size() - prompt_length_;
    const size_t left = answer_.size() > done ? answer_.size() - done : 0;
    const int right =
        static_cast<int>(std::min<size_t>({left, static_cast<size_t>(round_++ % (budget.max_nodes + 1)),
                                           static_cast<size_t>(budget.max_depth)}));
    int placed = 0, path_end = 0;
    // Right tokens and decoys in random order, so that node order and path order part.
    for (int tries = 0; tree.size() - 1 < budget.max_nodes && tries < 8 * budget.max_nodes; ++tries) {
      const int room = budget.max_nodes - (tree.size() - 1);
      const bool must_place = room <= right - placed;
      if (placed < right && (must_place || Below(2) == 0)) {
        path_end = tree.AddChild(path_end, answer_[done + static_cast<size_t>(placed)]);
        ++placed;
        continue;
      }
      if (must_place) break;
      const int parent = Below(tree.size());
      const auto depth = static_cast<size_t>(tree.node(parent).depth);
      const int32_t decoy = Below(vocab_size_);
      // A decoy must not be the right token, or the accepted length would not be the chosen one.
      const bool is_right = depth < left && decoy == answer_[done + depth];
      if (static_cast<int>(depth) < budget.max_depth && !is_right) tree.AddChild(parent, decoy);
    }
    return {};
  }

  Status Read(const CommittedRows&) override { return {}; }

 private:
  int Below(int n) { return static_cast<int>(rng_.Uniform(draws_++) * n); }

  std::vector<int32_t> answer_;
  int vocab_size_;
  RngStream rng_;
  uint64_t draws_ = 0;
  int round_ = 0;
  size_t prompt_length_ = 0;
};

}  // namespace

std::unique_ptr<Drafter> MakeForcedTreeDrafter(std::vector<int32_t> answer, int vocab_size, uint64_t seed) {
  return std::make_unique<ForcedTreeDrafter>(std::move(answer), vocab_size, seed);
}

}  // namespace longspec
