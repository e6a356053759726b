// SPDX-License-Identifier: Apache-2.0
#include "draft/portfolio_drafter.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "draft/mixture.h"
#include "draft/tree_merge.h"

namespace longspec {
namespace {

class PortfolioDrafter final : public Portfolio {
 public:
  PortfolioDrafter(std::string name, std::vector<std::unique_ptr<Drafter>> members)
      : name_(std::move(name)), members_(std::move(members)) {
    for (size_t i = 0; i < members_.size(); ++i) {
      Join(members_[i]->taps());
      Adviser* const adviser = members_[i]->adviser();
      if (adviser == nullptr || mixture_) continue;
      mixture_.emplace(*adviser);
      adviser_ = i;
    }
    if (!mixture_) return;
    for (const auto& member : members_) member->SetMixture(&*mixture_);
  }

  std::string_view name() const override { return name_; }
  std::vector<std::string_view> sources() const override {
    std::vector<std::string_view> names;
    for (const auto& member : members_) names.push_back(member->name());
    return names;
  }
  // Layers stay in their order, which is that of what is read; how many rows of queries a member wants may
  // change from round to round.
  Taps taps() const override {
    Taps taps = taps_;
    for (const auto& member : members_)
      taps.query_rows = std::max(taps.query_rows, member->taps().query_rows);
    return taps;
  }

  Status Follow(std::span<const int32_t> committed) override {
    for (const auto& member : members_) LS_TRY(member->Follow(committed));
    return {};
  }

  std::span<const std::unique_ptr<Drafter>> members() const override { return members_; }

  void Begin(const DraftBudget& budget, std::span<const int32_t> committed) override {
    mixer_ = kNobody;
    if (mixture_) mixture_->Begin(budget.max_depth);
    proposals_.assign(members_.size(), TokenTree(committed.back()));
  }

  DraftTask Ask(size_t member, const DraftBudget& budget, std::span<const int32_t> committed,
                PassMeeting& meeting) override {
    LS_CO_TRY(co_await members_[member]->Draft(budget, committed, proposals_[member], meeting));
    if (mixer_ == kNobody && mixture_ && mixture_->used()) mixer_ = member;
    co_return Status();
  }

  const TokenTree& proposal(size_t member) const override { return proposals_[member]; }

  void Merge(int max_nodes, TokenTree& tree) override {
    if (mixer_ == kNobody) return merger_.AddBest(proposals_, max_nodes, tree);
    // What the adviser says is in the draft model's tree, weighed against what the model says.
    const int32_t root = tree.node(0).token;
    proposals_[adviser_] = TokenTree(root);
    TokenTree merged(root);
    merger_.AddBest(proposals_, max_nodes, merged);
    NameSources(merged, mixer_, tree);
  }

  // Of the first member that has one: only draft models do, and there is one of them.
  const LayerPrefix* prefix() const override {
    for (const auto& member : members_) {
      if (const LayerPrefix* own = member->prefix(); own != nullptr) return own;
    }
    return nullptr;
  }

  Status Read(const CommittedRows& rows) override {
    if (mixture_) mixture_->Learn(rows.sequence, rows.n_new);
    for (size_t i = 0; i < members_.size(); ++i) {
      if (rows.output == nullptr || taps_.hidden_layers.empty()) {
        LS_TRY(members_[i]->Read(rows));
        continue;
      }
      const TargetOutput::Segment view = ViewOf(i, *rows.output);
      CommittedRows own = rows;
      own.output = &view;
      LS_TRY(members_[i]->Read(own));
    }
    return {};
  }

  std::vector<DrafterSnapshot> Snapshots() const override {
    std::vector<DrafterSnapshot> all;
    for (const auto& member : members_) {
      for (DrafterSnapshot& snapshot : member->Snapshots()) all.push_back(std::move(snapshot));
    }
    return all;
  }
  Status Restore(const DrafterSnapshot& snapshot) override {
    for (const auto& member : members_) LS_TRY(member->Restore(snapshot));
    return {};
  }

  int overlap(std::span<const int32_t> committed, int n) const override {
    int most = 0;
    for (const auto& member : members_) most = std::max(most, member->overlap(committed, n));
    return most;
  }
  bool uses_dice() const override {
    return std::ranges::any_of(members_, [](const auto& member) { return member->uses_dice(); });
  }

  std::vector<std::pair<std::string, std::string>> uses() const override {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& member : members_) {
      for (auto& use : member->uses()) all.push_back(std::move(use));
    }
    return all;
  }

  std::string notice() const override {
    std::string all;
    for (const auto& member : members_) {
      if (const std::string own = member->notice(); !own.empty()) all += (all.empty() ? "" : "; ") + own;
    }
    return all;
  }

  size_t bytes() const override {
    size_t total = 0;
    for (const auto& member : members_) total += member->bytes();
    return total;
  }

 private:
  static constexpr size_t kNobody = std::numeric_limits<size_t>::max();

  // Copies a merged tree. Of the mixer's nodes, those that are there for what the adviser says are its own.
  void NameSources(const TokenTree& merged, size_t mixer, TokenTree& tree) {
    for (int i = 1; i < merged.size(); ++i) {
      const TreeNode& node = merged.node(i);
      const bool advisers = node.source == static_cast<int32_t>(mixer) &&
                            mixture_->IsAdvisers(merged.TokensTo(node.parent), node.token);
      tree.AddChild(node.parent, node.token, node.score, advisers ? static_cast<int>(adviser_) : node.source);
    }
  }

  // Adds what a member wants: the union, each layer once.
  void Join(const Taps& wanted) {
    taps_.final_hidden = taps_.final_hidden || wanted.final_hidden;
    taps_.logits = taps_.logits || wanted.logits;
    for (const int layer : wanted.hidden_layers) {
      auto& layers = taps_.hidden_layers;
      if (std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
    }
  }

  // The output with hidden states in the order that member asked for.
  TargetOutput::Segment ViewOf(size_t member, const TargetOutput::Segment& output) const {
    TargetOutput::Segment view = output;
    view.hidden.clear();
    for (const int layer : members_[member]->taps().hidden_layers) {
      const auto& layers = taps_.hidden_layers;
      view.hidden.push_back(
          output
              .hidden[static_cast<size_t>(std::find(layers.begin(), layers.end(), layer) - layers.begin())]);
    }
    return view;
  }

  std::string name_;
  std::vector<std::unique_ptr<Drafter>> members_;
  Taps taps_;
  std::optional<Mixture> mixture_;    // with the opinion of the first adviser among the members,
  size_t adviser_ = kNobody;          // which is this one
  std::vector<TokenTree> proposals_;  // by member
  size_t mixer_ = kNobody;            // whose proposal holds the adviser's opinion
  TreeMerger merger_;
};

}  // namespace

DraftTask Portfolio::Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                           PassMeeting& meeting) {
  Begin(budget, committed);
  for (size_t i = 0; i < members().size(); ++i) LS_CO_TRY(co_await Ask(i, budget, committed, meeting));
  Merge(budget.max_nodes, tree);
  co_return Status();
}

std::unique_ptr<Drafter> NewPortfolio(std::string name, std::vector<std::unique_ptr<Drafter>> members) {
  return std::make_unique<PortfolioDrafter>(std::move(name), std::move(members));
}

}  // namespace longspec
