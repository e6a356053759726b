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
};

PrefixIndex::PrefixIndex(size_t most_chunks) : most_chunks_(most_chunks), root_(std::make_unique<Node>()) {}
PrefixIndex::~PrefixIndex() = default;

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
    step.child->used = now_;
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
      node->children.erase(*step.child->tokens);
      --n_chunks_;
    }
    auto [at, is_new] =
        node->children.emplace(std::vector<int32_t>(part.begin(), part.end()), std::make_unique<Node>());
    LS_CHECK(is_new);
    Node* child = at->second.get();
    child->chunk = chunks[i];
    child->parent = node;
    child->tokens = &at->first;
    child->used = now_;
    ++n_chunks_;
    node = child;
  }
}

bool PrefixIndex::DropOldest() {
  Node* oldest = nullptr;
  const auto visit = [&](const auto& self, Node& node) -> void {
    for (auto& [tokens, child] : node.children) self(self, *child);
    if (node.parent == nullptr || !node.children.empty() || node.chunk.use_count() > 1) return;
    if (oldest == nullptr || node.used < oldest->used) oldest = &node;
  };
  visit(visit, *root_);
  if (oldest == nullptr) return false;
  Node* parent = oldest->parent;
  parent->children.erase(parent->children.find(*oldest->tokens));
  --n_chunks_;
  return true;
}

void PrefixIndex::Forget(const KvChunkRef& chunk) {
  if (chunk.use_count() != 2) return;
  const auto visit = [&](const auto& self, Node& node) -> bool {
    for (auto at = node.children.begin(); at != node.children.end(); ++at) {
      if (at->second->chunk == chunk) {
        if (at->second->children.empty()) {
          node.children.erase(at);
          --n_chunks_;
        }
        return true;
      }
      if (self(self, *at->second)) return true;
    }
    return false;
  };
  visit(visit, *root_);
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
  while (node->parent != nullptr && node->children.empty()) {
    Node* parent = node->parent;
    parent->children.erase(parent->children.find(*node->tokens));
    --n_chunks_;
    node = parent;
  }
}

size_t PrefixIndex::n_reclaimable() const {
  size_t n = 0;
  // A chunk that nobody holds can go once those under it can.
  const auto visit = [&](const auto& self, const Node& node) -> bool {
    bool all = true;
    for (const auto& [tokens, child] : node.children) all = self(self, *child) && all;
    const bool can_go = all && node.parent != nullptr && node.chunk.use_count() == 1;
    n += can_go ? 1 : 0;
    return can_go;
  };
  visit(visit, *root_);
  return n;
}

void PrefixIndex::Trim() {
  for (size_t n = n_reclaimable(); n > most_chunks_; --n) {
    if (!DropOldest()) return;
  }
}

}  // namespace longspec
