// SPDX-License-Identifier: Apache-2.0
//
// Proposes tokens it was given, by output index: a test tool that forces any pattern of acceptance. As a
// tree, every level also holds wrong siblings, added before the right child, so that node order differs from
// path order.
#include <algorithm>

#include "base/status_macros.h"
#include "draft/registry.h"
#include "draft/tree_width.h"

namespace longspec {
namespace {

class ReplayDrafter final : public Drafter {
 public:
  ReplayDrafter(std::vector<int32_t> tokens, int width) : tokens_(std::move(tokens)), n_decoy_(width - 1) {}

  std::string_view name() const override { return "replay"; }

  Status Follow(std::span<const int32_t> committed) override {
    prompt_length_ = committed.size();
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    int room = budget.max_nodes;
    int parent = 0;
    const size_t first = committed.size() - prompt_length_;
    for (size_t i = first; i < tokens_.size() && room > 0 && tree.node(parent).depth < budget.max_depth;
         ++i) {
      const int n_decoy = std::min(n_decoy_, room - 1);
      for (int k = 1; k <= n_decoy; ++k) tree.AddChild(parent, Decoy(tokens_[i], k));
      parent = tree.AddChild(parent, tokens_[i]);
      room -= n_decoy + 1;
    }
    return {};
  }

  Status Read(const CommittedRows&) override { return {}; }
  size_t bytes() const override { return tokens_.capacity() * sizeof(int32_t); }

 private:
  // The k-th token beside `right`: below it while there are any, so that it stays inside the vocabulary.
  static int32_t Decoy(int32_t right, int k) { return right >= k ? right - k : right + k; }

  std::vector<int32_t> tokens_;
  int n_decoy_;
  size_t prompt_length_ = 0;
};

Status CheckReplay(const SpeculationOptions& options) {
  LS_TRY(ParseTreeWidth(options.tree).status());
  if (std::any_of(options.replay_tokens.begin(), options.replay_tokens.end(),
                  [](int32_t t) { return t < 0; })) {
    return InvalidArgument("replay_tokens: tokens must be 0 or more");
  }
  return {};
}

DrafterResult MakeReplay(const SpeculationOptions& options, const DraftContext&) {
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  return std::unique_ptr<Drafter>(std::make_unique<ReplayDrafter>(options.replay_tokens, width));
}

}  // namespace

constexpr DrafterEntry kReplayDrafter = {
    .name = "replay",
    .summary = "tokens that a program gives it, for tests",
    .check = CheckReplay,
    .make = MakeReplay,
    .chain_by_default = true,
};

}  // namespace longspec
