// SPDX-License-Identifier: Apache-2.0
#include "draft/portfolio_drafter.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "draft/asking_gain.h"
#include "draft/mixture.h"
#include "draft/pass_meeting.h"
#include "draft/tree_merge.h"

namespace longspec {
namespace {

// Rows of what a member did not read that cost hardly more with its proposal than without them.
constexpr size_t kReadWithTree = 8;

class PortfolioDrafter final : public MeetingDrafter {
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

  DraftTask Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                  PassMeeting& meeting) override {
    DraftBudget own = budget;
    mixer_ = kNobody;
    if (mixture_) {
      mixture_->Begin();
      own.mixture = &*mixture_;
    }
    proposals_.assign(members_.size(), TokenTree(committed.back()));
    asked_.reset();
    // Who takes time, and how much of that is reading. Asked once: who has caught up has nothing left to
    // read.
    std::vector<bool> is_dear(members_.size());
    size_t unread = 0;
    for (size_t i = 0; i < members_.size() && budget.asking != nullptr; ++i) {
      const size_t rows = members_[i]->Unread(committed);
      if (rows > kReadWithTree) unread = std::max(unread, rows);
      is_dear[i] = rows > kReadWithTree || budget.asking->IsDear(i, budget.dear_ms);
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!is_dear[i]) LS_CO_TRY(co_await Ask(i, own, committed, meeting));
    }
    Merge(budget, tree);
    if (std::ranges::find(is_dear, true) == is_dear.end()) co_return Status();
    double expected = 0;
    for (const TreeNode& node : tree.nodes().subspan(1)) expected += static_cast<double>(node.score);
    own.max_levels = budget.asking->Levels(expected, budget.token_ms, budget.max_depth, unread);
    if (own.max_levels == 0) co_return Status();
    if (unread > 0) {
      const double start = meeting.Ms();
      for (size_t i = 0; i < members_.size(); ++i) {
        if (is_dear[i]) LS_CO_TRY(members_[i]->CatchUp(committed));
      }
      budget.asking->CaughtUp(unread, meeting.Ms() - start);
    }
    asked_ = Asked{.gain = budget.asking,
                   .at = committed.size(),
                   .expected = expected,
                   .levels = own.max_levels,
                   .is_dear = std::move(is_dear),
                   .without = tree};
    const double start = meeting.Ms();
    bool any_answer = false;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!asked_->is_dear[i]) continue;
      LS_CO_TRY(co_await Ask(i, own, committed, meeting));
      any_answer = any_answer || proposals_[i].size() > 1;
    }
    asked_->ms = meeting.Ms() - start;
    if (!any_answer) {  // none was ready to say anything, which tells nothing of what it gains
      asked_.reset();
      co_return Status();
    }
    budget.asking->Answered();
    tree = TokenTree(committed.back());
    Merge(budget, tree);
    co_return Status();
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
    LearnWhatAskingGained(rows);
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

  std::vector<DraftState> SaveState() const override {
    std::vector<DraftState> states;
    for (const auto& member : members_) {
      for (DraftState& state : member->SaveState()) states.push_back(std::move(state));
    }
    return states;
  }
  Status LoadState(const DraftState& state) override {
    for (const auto& member : members_) LS_TRY(member->LoadState(state));
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

  // A round in which members that take time were asked: the tree with their guesses and without.
  struct Asked {
    AskingGain* gain;           // the budget's
    size_t at;                  // committed tokens then
    double expected;            // of the tree without
    int levels;                 // of their guesses
    std::vector<bool> is_dear;  // by member
    TokenTree without;
    double ms = 0;
  };

  DraftTask Ask(size_t member, const DraftBudget& budget, std::span<const int32_t> committed,
                PassMeeting& meeting) {
    const double start = meeting.Ms();
    LS_CO_TRY(co_await members_[member]->Draft(budget, committed, proposals_[member], meeting));
    if (mixer_ == kNobody && mixture_ && mixture_->used()) mixer_ = member;
    if (budget.asking != nullptr &&
        (proposals_[member].size() > 1 || !budget.asking->IsDear(member, budget.dear_ms)))
      budget.asking->Took(member, meeting.Ms() - start);
    co_return Status();
  }

  // Of what was proposed so far.
  void Merge(const DraftBudget& budget, TokenTree& tree) {
    if (mixer_ == kNobody) return merger_.AddBest(proposals_, budget.max_nodes, tree);
    // What the adviser says is in the draft model's tree, weighed against what the model says.
    const int32_t root = tree.node(0).token;
    proposals_[adviser_] = TokenTree(root);
    TokenTree merged(root);
    merger_.AddBest(proposals_, budget.max_nodes, merged);
    NameSources(merged, mixer_, tree);
  }

  void LearnWhatAskingGained(const CommittedRows& rows) {
    const auto added = static_cast<size_t>(rows.n_new);
    // Where nothing was verified, asking gained nothing.
    if (asked_ && added > 0 && rows.tree != nullptr && rows.sequence.size() == asked_->at + added) {
      followed_.clear();
      for (int levels = 0; levels <= asked_->levels; ++levels) {
        followed_.push_back(FollowedBy(*asked_, levels, *rows.tree, rows.sequence.last(added)));
      }
      asked_->gain->Learn(asked_->expected, followed_, asked_->ms);
    }
    asked_.reset();
  }

  // How many of these tokens are on a path of what was verified, with so many levels of dear members'
  // guesses. Without them, as many nodes of the others' tree would have been: its best, which come first.
  static int FollowedBy(const Asked& asked, int levels, const TokenTree& verified,
                        std::span<const int32_t> text) {
    int with = 0, without = 0, n = 0;
    const auto is_theirs = [&](int node) {
      return asked.is_dear[static_cast<size_t>(verified.node(node).source)];
    };
    for (const int32_t token : text) {
      if (with >= 0) with = verified.FindChild(with, token);
      if (without >= 0) without = asked.without.FindChild(without, token);
      if (without >= verified.size()) without = -1;
      if (levels == 0 ? without < 0 : with < 0) break;
      if (levels > 0 && n >= levels && without < 0 && is_theirs(with)) break;
      ++n;
    }
    return n;
  }

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
  std::optional<Asked> asked_;        // in the last proposal
  std::vector<int> followed_;
  TreeMerger merger_;
};

}  // namespace

std::unique_ptr<Drafter> NewPortfolio(std::string name, std::vector<std::unique_ptr<Drafter>> members) {
  return std::make_unique<PortfolioDrafter>(std::move(name), std::move(members));
}

}  // namespace longspec
