// SPDX-License-Identifier: Apache-2.0
//
// Token Recycling (arXiv 2408.08696): what the target once thought might follow a token is
// proposed when that token comes again. Every verified row teaches, the rejected ones too. Needs no model,
// and the same memory for every context.
#include "draft_text/recycling.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/largest.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "draft/tree_shape.h"
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
  std::vector<DrafterSnapshot> Snapshots() const override {
    if (!learned_ || !file_.empty()) return {};
    return {{.drafter = std::string(name()), .version = kSnapshotVersion, .bytes = table_.Bytes()}};
  }
  Status Restore(const DrafterSnapshot& snapshot) override {
    if (snapshot.drafter != name() || !file_.empty()) return {};
    if (snapshot.version != kSnapshotVersion) {
      return Unsupported("its state is of version " + std::to_string(snapshot.version) +
                         ", and this program reads " + std::to_string(kSnapshotVersion));
    }
    LS_ASSIGN(table_, RecyclingTable::Parse(snapshot.bytes, "its state", table_.vocab_size()));
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
    const std::vector<int32_t> drafted = tree.TokensTo(node);
    foresight.Refine(kDiceOfCounts, {.committed = committed, .drafted = drafted}, rest, guesses);
    return guesses;
  }

  static constexpr int kAbsent = -1;
  static constexpr uint32_t kSnapshotVersion = 1;  // the bytes of the table's file

  RecyclingTable table_;
  const int width_;
  const std::string file_;
  bool learned_ = false;
  std::vector<int> nodes_;                                   // of the proposed tree, by node of the shape
  std::vector<std::optional<std::vector<Guess>>> children_;  // by node of the proposed tree
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
     .member = At<&SpeculationOptions::recycling, &RecyclingDraftOptions::file>,
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
  LS_ASSIGN(RecyclingTable table, OpenTable(options.recycling.file, context.target->vocab_size()));
  return std::unique_ptr<Drafter>(
      std::make_unique<RecyclingDrafter>(std::move(table), width, options.recycling.file));
}

// What it learns in one text alone is not worth its place.
bool HasFile(const SpeculationOptions& options) { return !options.recycling.file.empty(); }

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

namespace {

constexpr char kTableMagic[8] = {'L', 'S', 'R', 'E', 'C', 'Y', 'C', 'L'};
constexpr uint32_t kTableVersion = 1;

struct TableHeader {
  char magic[8];
  uint32_t version;
  uint32_t n_candidates;
  uint64_t vocab_size;
};
static_assert(sizeof(TableHeader) == 24);

Status CheckHeader(const std::string& path, std::span<const std::byte> bytes, int vocab_size) {
  TableHeader header = {};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kTableMagic, sizeof(kTableMagic)) != 0) {
    return Corrupt(path + ": not a file that --spec-recycling-file wrote");
  }
  if (header.version != kTableVersion || header.n_candidates != kRecycledCandidates) {
    return Unsupported(path + ": version " + std::to_string(header.version) + " with " +
                       std::to_string(header.n_candidates) +
                       " candidates a token; this program reads version " + std::to_string(kTableVersion) +
                       " with " + std::to_string(kRecycledCandidates));
  }
  if (header.vocab_size != static_cast<uint64_t>(vocab_size)) {
    return InvalidArgument(path + ": made for a vocabulary of " + std::to_string(header.vocab_size) +
                           " tokens; this model has " + std::to_string(vocab_size) +
                           ": name another --spec-recycling-file");
  }
  const size_t expected =
      sizeof(header) + static_cast<size_t>(vocab_size) * kRecycledCandidates * sizeof(int32_t);
  if (bytes.size() != expected) {
    return Corrupt(path + ": " + std::to_string(bytes.size()) + " bytes; must be " +
                   std::to_string(expected));
  }
  return {};
}

}  // namespace

Result<RecyclingTable> RecyclingTable::Load(const std::string& path, int vocab_size) {
  LS_ASSIGN(const MappedFile file, MappedFile::Open(path));
  return Parse(file.bytes(), path, vocab_size);
}

Result<RecyclingTable> RecyclingTable::Parse(std::span<const std::byte> bytes, const std::string& name,
                                             int vocab_size) {
  LS_TRY(CheckHeader(name, bytes, vocab_size));
  RecyclingTable table(vocab_size);
  std::memcpy(table.candidates_.data(), bytes.data() + sizeof(TableHeader),
              table.candidates_.size() * sizeof(int32_t));
  for (const int32_t token : table.candidates_) {
    if (token < kUnknown || token >= vocab_size) {
      return Corrupt(name + ": names token " + std::to_string(token) + ", outside the vocabulary of " +
                     std::to_string(vocab_size));
    }
  }
  return table;
}

std::vector<std::byte> RecyclingTable::Bytes() const {
  TableHeader header = {};
  std::memcpy(header.magic, kTableMagic, sizeof(kTableMagic));
  header.version = kTableVersion;
  header.n_candidates = kRecycledCandidates;
  header.vocab_size = static_cast<uint64_t>(vocab_size());
  const auto candidates = std::as_bytes(std::span(candidates_));
  std::vector<std::byte> bytes(sizeof(header) + candidates.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::ranges::copy(candidates, bytes.begin() + sizeof(header));
  return bytes;
}

Status RecyclingTable::Save(const std::string& path) const {
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  LS_TRY(file.Write(Bytes()));
  return file.Commit();
}

void RecyclingTable::Update(int32_t token, const LogitRow& logits) {
  LS_CHECK(logits.vocab() == vocab_size() && token >= 0 && token < vocab_size());
  const auto row =
      std::span(candidates_).subspan(static_cast<size_t>(token) * kRecycledCandidates, kRecycledCandidates);
  const int n = logits.Best(row);
  std::fill(row.begin() + n, row.end(), kUnknown);
}

namespace {

constexpr auto kBetter = [](const RecyclingNode& a, const RecyclingNode& b) { return a.score > b.score; };

// The best `n` children of nodes[begin, end).
std::vector<RecyclingNode> BestChildren(const std::vector<RecyclingNode>& nodes, size_t begin, int n) {
  std::vector<RecyclingNode> children;
  for (size_t i = begin; i < nodes.size(); ++i) {
    for (size_t rank = 0; rank < kRankShare.size(); ++rank) {
      children.push_back({.parent = static_cast<int32_t>(i),
                          .rank = static_cast<int32_t>(rank),
                          .depth = nodes[i].depth + 1,
                          .score = nodes[i].score * kRankShare[rank]});
    }
  }
  KeepLargest(children, static_cast<size_t>(n), &RecyclingNode::score);
  return children;
}

std::vector<RecyclingNode> Build() {
  std::vector<RecyclingNode> nodes = {{.parent = -1, .rank = 0, .depth = 0, .score = 1.0F}};
  size_t level = 0;
  for (const int n : kRecyclingLevels) {
    const std::vector<RecyclingNode> children = BestChildren(nodes, level, n);
    level = nodes.size();
    nodes.insert(nodes.end(), children.begin(), children.end());
  }
  // Every score is below its parent's, so parents stay first; then their indices follow, without the root.
  std::vector<int32_t> order(nodes.size()), place(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return kBetter(nodes[static_cast<size_t>(a)], nodes[static_cast<size_t>(b)]);
  });
  std::vector<RecyclingNode> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto node = static_cast<size_t>(order[i]);
    place[node] = static_cast<int32_t>(i) - 1;
    if (node == 0) continue;
    sorted.push_back(nodes[node]);
    sorted.back().parent = place[static_cast<size_t>(nodes[node].parent)];
  }
  return sorted;
}

}  // namespace

const std::vector<RecyclingNode>& RecyclingTree() {
  static const std::vector<RecyclingNode> tree = Build();
  return tree;
}

}  // namespace longspec
