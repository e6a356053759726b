// SPDX-License-Identifier: Apache-2.0
//
// Token Recycling (arXiv 2408.08696; research: 2.3): what the target once thought might follow a token is
// proposed when that token comes again. Every verified row teaches, the rejected ones too. Needs no model,
// and the same memory for every context.
#include <algorithm>
#include <iterator>
#include <optional>

#include "base/status_macros.h"
#include "draft/tree_width.h"
#include "draft_text/recycling_table.h"
#include "draft_text/text_drafters.h"
#include "formats/atomic_file.h"

namespace longspec {
namespace {

class RecyclingDrafter final : public Drafter {
 public:
  RecyclingDrafter(RecyclingTable table, int width, std::string file)
      : table_(std::move(table)), width_(width), file_(std::move(file)) {}

  // The table only saves time, and that it could be written was seen when the drafter was made: a disk that
  // has filled up since costs the next run its warm start and nothing else.
  ~RecyclingDrafter() override {
    if (!file_.empty() && learned_) static_cast<void>(table_.Save(file_));
  }

  std::string_view name() const override { return "recycling"; }
  bool uses_dice() const override { return true; }

  Status Follow(std::span<const int32_t>) override { return {}; }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    Grow(budget, committed, tree);
    return {};
  }

  // What the target saw after each node that was verified. Of equal tokens the last one stays.
  Status Read(const CommittedRows& rows) override {
    if (rows.output == nullptr || rows.tree == nullptr) return {};
    for (int i = 0; i < rows.tree->size(); ++i) {
      table_.Update(rows.tree->node(i).token, rows.LogitsOf(rows.root_row + i));
    }
    learned_ = true;
    return {};
  }

  // Logits are not computed again. With a file of its own, that keeps it.
  std::vector<DraftState> SaveState() const override {
    if (!learned_ || !file_.empty()) return {};
    return {{.drafter = std::string(name()), .version = kStateVersion, .bytes = table_.Bytes()}};
  }
  Status LoadState(const DraftState& state) override {
    if (state.drafter != name() || !file_.empty()) return {};
    if (state.version != kStateVersion) {
      return Unsupported("its state is of version " + std::to_string(state.version) +
                         ", and this program reads " + std::to_string(kStateVersion));
    }
    LS_ASSIGN(table_, RecyclingTable::Parse(state.bytes, "its state", table_.vocab_size()));
    learned_ = true;
    return {};
  }

  size_t bytes() const override { return table_.bytes(); }

 private:
  void Grow(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) {
    const std::vector<RecyclingNode>& shape = RecyclingTree();
    nodes_.assign(shape.size(), kAbsent);
    children_.clear();
    for (size_t i = 0; i < shape.size() && tree.size() - 1 < budget.max_nodes; ++i) {
      const RecyclingNode& node = shape[i];
      const int parent = node.parent < 0 ? 0 : nodes_[static_cast<size_t>(node.parent)];
      if (parent == kAbsent || node.rank >= width_ || node.depth > budget.max_depth) continue;
      const std::vector<Guess>& children = Children(parent, budget.foresight, committed, tree);
      if (static_cast<size_t>(node.rank) >= children.size()) continue;
      const Guess& child = children[static_cast<size_t>(node.rank)];
      const double score = static_cast<double>(tree.node(parent).score) * child.chance;
      nodes_[i] = tree.AddChild(parent, child.token, static_cast<float>(score));
    }
  }

  // What may follow a node, likeliest first.
  const std::vector<Guess>& Children(int node, const Foresight& foresight, std::span<const int32_t> committed,
                                     const TokenTree& tree) {
    const auto index = static_cast<size_t>(node);
    if (children_.size() <= index) children_.resize(index + 1);
    if (children_[index]) return *children_[index];
    std::vector<Guess>& guesses = children_[index].emplace();
    double rest = 1;
    for (int32_t rank = 0; rank < kRecycledCandidates; ++rank) {
      const int32_t token = table_.Candidate(tree.node(node).token, rank);
      if (token < 0) continue;
      guesses.push_back(
          {.token = token, .chance = static_cast<double>(kRankShare[static_cast<size_t>(rank)])});
      rest -= guesses.back().chance;
    }
    path_.clear();
    for (const int32_t at : tree.PathTo(node)) path_.push_back(tree.node(at).token);
    foresight.Refine(kDiceOfCounts, {.committed = committed, .drafted = std::span(path_).subspan(1)}, rest,
                     guesses);
    return guesses;
  }

  static constexpr int kAbsent = -1;
  static constexpr uint32_t kStateVersion = 1;  // the bytes of the table's file

  RecyclingTable table_;
  const int width_;
  const std::string file_;
  bool learned_ = false;
  std::vector<int> nodes_;                                   // of the proposed tree, by node of the shape
  std::vector<std::optional<std::vector<Guess>>> children_;  // by node of the proposed tree
  std::vector<int32_t> path_;
};

// "" is the whole tree; a number keeps so many candidates of each node.
Result<int> RecyclingWidth(const std::string& tree) {
  return tree.empty() ? Result<int>(kRecycledCandidates) : ParseTreeWidth(tree);
}

Result<RecyclingTable> OpenTable(const std::string& path, int vocab_size) {
  if (path.empty()) return RecyclingTable(vocab_size);
  auto table = RecyclingTable::Load(path, vocab_size);
  if (!table.ok() && table.status().code() != StatusCode::kNotFound) return table;
  LS_TRY(AtomicFile::Create(path).status());  // rather now than when it has been filled
  return table.ok() ? std::move(table) : Result<RecyclingTable>(RecyclingTable(vocab_size));
}

// The whole tree.
void TokenRecycling(SpeculationOptions& o) {
  SetNodes(80, &o);
  o.dice = false;
}

constexpr DrafterOption kRecyclingOptions[] = {
    {.flags = "--spec-recycling-file",
     .member = &SpeculationOptions::recycling_file,
     .help = "what was learned is read from and written to this file"},
};

constexpr DrafterPreset kRecyclingPresets[] = {
    {.name = "token_recycling", .of = "Token Recycling", .set = TokenRecycling},
    {.name = "tr", .of = "Token Recycling", .set = TokenRecycling},
};

Status CheckRecycling(const SpeculationOptions& options) { return RecyclingWidth(options.tree).status(); }

DrafterResult MakeRecycling(const SpeculationOptions& options, const DraftContext& context) {
  if (context.target == nullptr) {
    return InvalidArgument("--spec-type recycling: needs a target, whose vocabulary it is for");
  }
  LS_ASSIGN(const int width, RecyclingWidth(options.tree));
  LS_ASSIGN(RecyclingTable table, OpenTable(options.recycling_file, context.target->vocab_size()));
  return std::unique_ptr<Drafter>(
      std::make_unique<RecyclingDrafter>(std::move(table), width, options.recycling_file));
}

// What it learns in one text alone is not worth its place.
bool HasFile(const SpeculationOptions& options) { return !options.recycling_file.empty(); }

}  // namespace

constexpr DrafterEntry kRecyclingDrafter = {
    .name = "recycling",
    .presets = kRecyclingPresets,
    .summary = "what the model last thought likely after each token",
    .options = kRecyclingOptions,
    .reads_dice = true,
    .check = CheckRecycling,
    .make = MakeRecycling,
    .in_auto = HasFile,
};

}  // namespace longspec
