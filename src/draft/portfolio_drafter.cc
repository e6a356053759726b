// SPDX-License-Identifier: Apache-2.0
//
// Several drafters, one tree: every member proposes as if it were alone, and the nodes with the best scores,
// whoever they come from, make the tree within the budget. A token that several propose is one node, with the
// best score, and TreeNode::source says whose it was first. Members are chosen by name, or by "auto", which
// takes whatever these options and this model allow.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "draft/draft_models.h"
#include "draft/registry.h"

namespace longspec {
namespace {

constexpr double kRate = 0.2;  // of running means

class PortfolioDrafter final : public Drafter {
 public:
  PortfolioDrafter(std::string name, std::vector<std::unique_ptr<Drafter>> members)
      : name_(std::move(name)), members_(std::move(members)), ms_(members_.size(), 0.0) {
    for (const auto& member : members_) Join(member->taps());
  }

  std::string_view name() const override { return name_; }
  std::vector<std::string_view> sources() const override {
    std::vector<std::string_view> names;
    for (const auto& member : members_) names.push_back(member->name());
    return names;
  }
  Taps taps() const override { return taps_; }

  Status Follow(std::span<const int32_t> committed) override {
    for (const auto& member : members_) LS_TRY(member->Follow(committed));
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    candidates_.clear();
    proposals_.clear();
    for (size_t i = 0; i < members_.size(); ++i) {
      TokenTree& own = proposals_.emplace_back(committed.back());
      if (budget.most_ms > 0 && ms_[i] > budget.most_ms) continue;
      const double start = NowMs();
      LS_TRY(members_[i]->Propose(budget, committed, own));
      const double took = NowMs() - start;
      ms_[i] = ms_[i] == 0 ? took : ms_[i] + kRate * (took - ms_[i]);
    }
    for (size_t source = 0; source < proposals_.size(); ++source) AddCandidates(source, 0, 0);
    while (tree.size() <= budget.max_nodes && !candidates_.empty()) TakeBest(tree);
    return {};
  }

  // Of the first member that has one: only draft models do, and there is one of them.
  const LayerPrefix* prefix() const override {
    for (const auto& member : members_) {
      if (const LayerPrefix* own = member->prefix(); own != nullptr) return own;
    }
    return nullptr;
  }

  Status Read(const CommittedRows& rows) override {
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
  // A member's node whose parent is in the merged tree.
  struct Candidate {
    float score;
    size_t source;
    int node;    // of the member's tree
    int parent;  // of the merged tree
  };

  // Adds what a member wants: the union, each layer once.
  void Join(const Taps& wanted) {
    taps_.final_hidden = taps_.final_hidden || wanted.final_hidden;
    taps_.logits = taps_.logits || wanted.logits;
    taps_.query_rows = std::max(taps_.query_rows, wanted.query_rows);
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

  void AddCandidates(size_t source, int node, int merged) {
    const TokenTree& own = proposals_[source];
    for (int child = own.node(node).first_child; child >= 0; child = own.node(child).next_sibling) {
      candidates_.push_back(
          {.score = own.node(child).score, .source = source, .node = child, .parent = merged});
    }
  }

  // Of equal scores the member named first wins, then the node it proposed first.
  static bool Better(const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.source != b.source ? a.source < b.source : a.node < b.node;
  }

  void TakeBest(TokenTree& tree) {
    const auto best = std::min_element(candidates_.begin(), candidates_.end(), Better);
    const Candidate taken = *best;
    candidates_.erase(best);
    const int32_t token = proposals_[taken.source].node(taken.node).token;
    const int merged = tree.AddChild(taken.parent, token, taken.score, static_cast<int>(taken.source));
    AddCandidates(taken.source, taken.node, merged);
  }

  std::string name_;
  std::vector<std::unique_ptr<Drafter>> members_;
  Taps taps_;
  std::vector<double> ms_;            // by member: what a proposal takes, a running mean; 0: unknown
  std::vector<TokenTree> proposals_;  // by member
  std::vector<Candidate> candidates_;
};

bool IsList(const std::string& type) { return type.find(',') != std::string::npos; }

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

SpeculationOptions OptionsOf(std::string_view member, const SpeculationOptions& options) {
  SpeculationOptions own = options;
  own.type = member;
  const DrafterEntry* entry = FindDrafter(member);
  if (entry != nullptr && entry->as_member != nullptr) entry->as_member(own);
  return own;
}

// The options of each member. `files`: DraftFiles or DraftModels, which know the draft model.
template <typename Files>
Result<std::vector<SpeculationOptions>> Members(const SpeculationOptions& options, Files& files) {
  std::vector<SpeculationOptions> members;
  if (IsList(options.type)) {
    for (const std::string& name : Split(options.type)) members.push_back(OptionsOf(name, options));
    return members;
  }
  std::string architecture;
  if (!options.draft_model.empty()) {
    LS_ASSIGN(architecture, files.Architecture(options.draft_model));
  }
  for (const DrafterEntry* entry : Drafters()) {
    if (entry->in_auto == nullptr || !entry->in_auto(options)) continue;
    if (entry->reads != nullptr && (architecture.empty() || !entry->reads(architecture))) continue;
    members.push_back(OptionsOf(entry->name, options));
  }
  return members;
}

Status CheckList(const SpeculationOptions& options) {
  std::vector<const DrafterEntry*> seen;
  for (const std::string& name : Split(options.type)) {
    const DrafterEntry* entry = FindDrafter(name);
    if (entry != nullptr && entry->alone) {
      return InvalidArgument("--spec-type " + options.type + ": " + name + " cannot be one of several");
    }
    if (std::ranges::find(seen, entry) != seen.end()) {
      return InvalidArgument("--spec-type " + options.type + ": " + name + " is named twice");
    }
    LS_TRY(CheckDrafter(OptionsOf(name, options)));
    seen.push_back(entry);
  }
  return {};
}

// Which drafter a draft model is for, its file will tell: until then it is enough that one takes the options.
Status CheckAuto(const SpeculationOptions& options) {
  Status refusal;
  bool taken = options.draft_model.empty();
  for (const DrafterEntry* entry : Drafters()) {
    if (entry->in_auto == nullptr || !entry->in_auto(options)) continue;
    if (entry->reads != nullptr && options.draft_model.empty()) continue;
    const Status status = CheckDrafter(OptionsOf(entry->name, options));
    if (entry->reads == nullptr) LS_TRY(status);
    if (entry->reads != nullptr && status.ok()) taken = true;
    if (refusal.ok()) refusal = status;
  }
  return taken ? Status() : refusal;
}

Status CheckPortfolio(const SpeculationOptions& options) {
  return IsList(options.type) ? CheckList(options) : CheckAuto(options);
}

// Whether its members fit, they say when theirs is planned.
Result<DraftMemory> PortfolioMemory(const SpeculationOptions& options, const TargetFacts& target,
                                    DraftFiles& files) {
  LS_ASSIGN(const auto members, Members(options, files));
  DraftMemory plan;
  for (const SpeculationOptions& member : members) {
    LS_ASSIGN(const DraftMemory own, PlanDraftMemory(member, target, files));
    plan += own;
  }
  return plan;
}

DrafterResult MakePortfolio(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(const auto chosen, Members(options, *context.models));
  std::vector<std::unique_ptr<Drafter>> members;
  for (const SpeculationOptions& own : chosen) {
    LS_ASSIGN(std::unique_ptr<Drafter> member, MakeDrafter(own, context));
    members.push_back(std::move(member));
  }
  return std::unique_ptr<Drafter>(std::make_unique<PortfolioDrafter>(options.type, std::move(members)));
}

}  // namespace

constexpr DrafterEntry kPortfolioDrafter = {
    .name = "auto",
    .aliases = {"portfolio"},
    .summary = "all that these options and this model allow, in one tree",
    .check = CheckPortfolio,
    .memory = PortfolioMemory,
    .make = MakePortfolio,
    .alone = true,
};

}  // namespace longspec
