// SPDX-License-Identifier: Apache-2.0
#include "kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace longspec {
namespace {

int CommonLength(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::span<const int32_t> FirstChunk(std::span<const int32_t> tokens) {
  return tokens.first(std::min(tokens.size(), static_cast<size_t>(kKvChunk)));
}

}  // namespace

// A chunk of up to 256 tokens. Only whole ones have children. No node's tokens begin another child's of the
// same parent.
struct PrefixIndex::Node {
  KvChunkRef chunk;  // null: the root
  Children children;
  Node* parent = nullptr;
  const std::vector<int32_t>* tokens = nullptr;  // the key it has in its parent
  uint64_t used = 0;
  size_t place = 0;              // in nodes_
  mutable uint64_t counted = 0;  // the last walk that counted it
};

PrefixIndex::PrefixIndex() : root_(std::make_unique<Node>()) {}
PrefixIndex::~PrefixIndex() = default;

PrefixIndex::Node* PrefixIndex::Add(Node& parent, std::span<const int32_t> tokens, KvChunkRef chunk) {
  nodes_.reserve(nodes_.size() + 1);
  auto [at, is_new] =
      parent.children.emplace(std::vector<int32_t>(tokens.begin(), tokens.end()), std::make_unique<Node>());
  LS_CHECK(is_new);
  Node* const node = at->second.get();
  node->chunk = std::move(chunk);
  node->parent = &parent;
  node->tokens = &at->first;
  node->place = nodes_.size();
  nodes_.push_back(node);
  return node;
}

void PrefixIndex::Erase(Node& node) {
  for (auto at = node.children.begin(); at != node.children.end();) Erase(*(at++)->second);
  nodes_[node.place] = nodes_.back();
  nodes_[node.place]->place = node.place;
  nodes_.pop_back();
  node.parent->children.erase(node.parent->children.find(*node.tokens));
}

// Of the children in the order of their tokens, the one with the most in common stands beside where these
// would.
PrefixIndex::Step PrefixIndex::Closest(const Node& node, std::span<const int32_t> tokens) {
  Step best;
  const auto after = node.children.lower_bound(std::vector<int32_t>(tokens.begin(), tokens.end()));
  const auto look = [&](Children::const_iterator at) {
    const int common = CommonLength(tokens, at->first);
    if (common > best.common) best = {.child = at->second.get(), .common = common};
  };
  if (after != node.children.end()) look(after);
  if (after != node.children.begin()) look(std::prev(after));
  return best;
}

PrefixIndex::Match PrefixIndex::Find(std::span<const int32_t> tokens) {
  Match match;
  ++now_;
  for (Node* node = root_.get(); !tokens.empty();) {
    const Step step = Closest(*node, FirstChunk(tokens));
    if (step.child == nullptr) break;
    const size_t asked = FirstChunk(tokens).size(), known = step.child->tokens->size();
    if (2 * static_cast<size_t>(step.common) >= std::min(asked, known)) step.child->used = now_;
    match.chunks.push_back(step.child->chunk);
    match.length += step.common;
    if (step.common < kKvChunk) break;
    node = step.child;
    tokens = tokens.subspan(kKvChunk);
  }
  return match;
}

int PrefixIndex::LengthKnown(std::span<const int32_t> tokens,
                             std::vector<const KvChunk*>* whole_chunks) const {
  int length = 0;
  for (const Node* node = root_.get(); !tokens.empty();) {
    const Step step = Closest(*node, FirstChunk(tokens));
    length += step.common;
    if (step.common < kKvChunk) break;
    node = step.child;
    if (whole_chunks != nullptr) whole_chunks->push_back(node->chunk.get());
    tokens = tokens.subspan(kKvChunk);
  }
  return length;
}

void PrefixIndex::Insert(std::span<const int32_t> tokens, std::span<const KvChunkRef> chunks) {
  LS_CHECK(chunks.size() * kKvChunk >= tokens.size());
  ++now_;
  Node* node = root_.get();
  for (size_t i = 0; !tokens.empty(); ++i) {
    const auto part = FirstChunk(tokens);
    tokens = tokens.subspan(part.size());
    const Step step = Closest(*node, part);
    if (step.common == static_cast<int>(part.size())) {  // known, and perhaps more
      step.child->used = now_;
      node = step.child;
      continue;
    }
    if (step.child != nullptr && step.common == static_cast<int>(step.child->tokens->size())) {
      // What was known of this chunk has become longer.
      Erase(*step.child);
    }
    node = Add(*node, part, chunks[i]);
    node->used = now_;
  }
}

bool PrefixIndex::DropOldest() {
  Node* oldest = nullptr;
  for (Node* node : nodes_) {
    if (oldest != nullptr && node->used >= oldest->used) continue;
    if (node->children.empty() && node->chunk.use_count() == 1) oldest = node;
  }
  if (oldest == nullptr) return false;
  Erase(*oldest);
  return true;
}

bool PrefixIndex::GiveUp(const KvChunkRef& chunk, int needed) {
  if (chunk.use_count() != 2) return false;
  const auto at =
      std::ranges::find(nodes_, chunk, [](const Node* node) -> const KvChunkRef& { return node->chunk; });
  if (at == nodes_.end() || !(*at)->children.empty()) return false;
  if (2 * static_cast<size_t>(needed) < (*at)->tokens->size()) return false;
  Erase(**at);
  return true;
}

void PrefixIndex::Forget(std::span<const int32_t> tokens) {
  Node* node = root_.get();
  while (!tokens.empty()) {
    const Step step = Closest(*node, FirstChunk(tokens));
    // Of the last chunk less may be known.
    if (step.child == nullptr || step.common < static_cast<int>(step.child->tokens->size())) break;
    node = step.child;
    if (step.common < kKvChunk) break;
    tokens = tokens.subspan(FirstChunk(tokens).size());
  }
  while (node->parent != nullptr && node->children.empty()) Erase(*std::exchange(node, node->parent));
}

size_t PrefixIndex::n_reclaimable() const {
  // A chunk that somebody holds stays, and those before it.
  size_t n = nodes_.size();
  ++count_;
  for (const Node* held : nodes_) {
    if (held->chunk.use_count() == 1) continue;
    for (const Node* node = held; node != root_.get() && node->counted != count_; node = node->parent) {
      node->counted = count_;
      --n;
    }
  }
  return n;
}

void PrefixIndex::Trim(size_t most_chunks) {
  for (size_t n = n_reclaimable(); n > most_chunks; --n) {
    if (!DropOldest()) return;
  }
}

}  // namespace longspec
