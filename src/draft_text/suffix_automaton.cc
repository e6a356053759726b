// SPDX-License-Identifier: Apache-2.0
#include "draft_text/suffix_automaton.h"

#include <algorithm>

#include "base/check.h"

namespace longspec {
namespace {

constexpr int32_t kRoot = 0;
constexpr int32_t kNone = -1;
constexpr int64_t kMaxTokens = int64_t{1} << 30;  // twice as many states have indices of 32 bits
constexpr size_t kFirstSlots = 64;

uint64_t Hash(int32_t from, int32_t token) {
  uint64_t h = (static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32) | static_cast<uint32_t>(token);
  h *= 0x9E3779B97F4A7C15;
  h ^= h >> 32;
  h *= 0xBF58476D1CE4E5B9;
  return h ^ (h >> 29);
}

}  // namespace

SuffixAutomaton::SuffixAutomaton(int max_context, int max_continuations)
    : max_context_(max_context), max_continuations_(max_continuations) {
  LS_CHECK(max_context >= 1 && max_continuations >= 1);
  Clear();
}

void SuffixAutomaton::Clear() {
  size_ = 0;
  last_ = tail_ = kRoot;
  states_.assign(1, State{});
  edges_.clear();
  slots_.assign(kFirstSlots, kNone);
}

size_t SuffixAutomaton::bytes() const {
  return states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
         (slots_.capacity() + copied_.capacity()) * sizeof(int32_t);
}

int32_t SuffixAutomaton::AddState(const State& state) {
  states_.push_back(state);
  return static_cast<int32_t>(states_.size()) - 1;
}

// The slot of an edge, or the empty one where it would go.
size_t SuffixAutomaton::Slot(int32_t from, int32_t token) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = Hash(from, token) & mask;; i = (i + 1) & mask) {
    if (slots_[i] == kNone) return i;
    const Edge& edge = edges_[static_cast<size_t>(slots_[i])];
    if (edge.from == from && edge.token == token) return i;
  }
}

int32_t SuffixAutomaton::FindEdge(int32_t from, int32_t token) const { return slots_[Slot(from, token)]; }

void SuffixAutomaton::AddEdge(int32_t from, int32_t token, int32_t to) {
  ++steps_;
  const auto index = static_cast<int32_t>(edges_.size());
  const int32_t next = state(from).first_edge;
  edges_.push_back({.from = from, .token = token, .to = to, .previous = kNone, .next = next});
  if (next != kNone) edges_[static_cast<size_t>(next)].previous = index;
  state(from).first_edge = index;
  slots_[Slot(from, token)] = index;
  if (2 * edges_.size() <= slots_.size()) return;
  slots_.assign(2 * slots_.size(), kNone);
  for (size_t i = 0; i < edges_.size(); ++i) {
    slots_[Slot(edges_[i].from, edges_[i].token)] = static_cast<int32_t>(i);
  }
}

// In the same order, which AddEdge reverses.
void SuffixAutomaton::CopyEdges(int32_t from, int32_t to) {
  copied_.clear();
  for (int32_t e = state(from).first_edge; e != kNone; e = edges_[static_cast<size_t>(e)].next) {
    copied_.push_back(e);
  }
  for (size_t i = copied_.size(); i-- > 0;) {
    const Edge& edge = edges_[static_cast<size_t>(copied_[i])];
    AddEdge(to, edge.token, edge.to);
  }
}

void SuffixAutomaton::MoveToFront(int32_t index) {
  Edge& edge = edges_[static_cast<size_t>(index)];
  if (edge.previous == kNone) return;
  edges_[static_cast<size_t>(edge.previous)].next = edge.next;
  if (edge.next != kNone) edges_[static_cast<size_t>(edge.next)].previous = edge.previous;
  int32_t& first = state(edge.from).first_edge;
  edges_[static_cast<size_t>(first)].previous = index;
  edge.previous = kNone;
  edge.next = first;
  first = index;
}

// `child`, which `token` leads to from `parent`, holds longer substrings that do not end where the parent's
// with the token do: gives the short ones a state of their own.
int32_t SuffixAutomaton::Split(int32_t parent, int32_t child, int32_t token) {
  State shorter = state(child);
  shorter.length = state(parent).length + 1;
  shorter.first_edge = kNone;
  const int32_t split = AddState(shorter);
  CopyEdges(child, split);
  for (int32_t p = parent; p != kNone; p = state(p).link) {
    ++steps_;
    Edge& edge = edges_[static_cast<size_t>(FindEdge(p, token))];
    if (edge.to != child) break;
    edge.to = split;
  }
  state(child).link = split;
  if (tail_ == child && std::min<int64_t>(size_, max_context_ + 1) <= shorter.length) tail_ = split;
  return split;
}

void SuffixAutomaton::AppendState(int32_t token) {
  const int32_t whole = AddState({.length = state(last_).length + 1});
  int32_t p = last_;
  int32_t edge = kNone;
  for (; p != kNone; p = state(p).link) {
    edge = FindEdge(p, token);
    if (edge != kNone) break;
    AddEdge(p, token, whole);
  }
  int32_t link = kRoot;
  if (p != kNone) {
    link = edges_[static_cast<size_t>(edge)].to;
    if (state(link).length != state(p).length + 1) link = Split(p, link, token);
  }
  state(whole).link = link;
  last_ = whole;
}

// Every suffix of the text up to max_context + 1 ends at one more place, and its last token is the most
// recent continuation of the contexts before it.
void SuffixAutomaton::CountSuffixes(int32_t token) {
  for (int32_t s = tail_; s != kRoot; s = state(s).link) {
    ++steps_;
    if (edges_[static_cast<size_t>(state(s).first_edge)].token != token) MoveToFront(FindEdge(s, token));
  }
  tail_ = Shorten(edges_[static_cast<size_t>(FindEdge(tail_, token))].to, max_context_ + 1);
  for (int32_t s = tail_; s != kRoot; s = state(s).link) {
    ++steps_;
    ++state(s).count;
  }
}

void SuffixAutomaton::Append(int32_t token) {
  LS_CHECK(token >= 0 && size_ < kMaxTokens);
  AppendState(token);
  CountSuffixes(token);
  ++size_;
}

// The state of the last `length` tokens of this one's substrings; itself if they are not longer.
int32_t SuffixAutomaton::Shorten(int32_t s, int length) const {
  ++steps_;
  for (; s != kRoot && state(state(s).link).length >= length; s = state(s).link) ++steps_;
  return s;
}

SuffixContext SuffixAutomaton::ContextOf(int32_t s) const {
  return {.first = s, .length = std::min(state(s).length, max_context_)};
}

SuffixContext SuffixAutomaton::LongestMatch() const {
  int32_t s = Shorten(tail_, max_context_);
  if (s != kRoot && state(s).count < 2) s = state(s).link;  // it occurs at the end only
  return ContextOf(s);
}

SuffixContext SuffixAutomaton::Shorter(const SuffixContext& context) const {
  ++steps_;
  const auto s = static_cast<int32_t>(context.first);
  return ContextOf(s == kRoot ? kRoot : state(s).link);
}

bool SuffixAutomaton::Extend(const SuffixContext& context, int32_t token, SuffixContext* extended) const {
  const int32_t edge = FindEdge(static_cast<int32_t>(context.first), token);
  if (edge == kNone) return false;
  // Of the state, which may hold longer strings too: those that this context ends.
  *extended = {.first = Shorten(edges_[static_cast<size_t>(edge)].to, max_context_),
               .length = std::min(context.length + 1, max_context_)};
  return true;
}

int64_t SuffixAutomaton::Count(const SuffixContext& context) const {
  const auto s = static_cast<int32_t>(context.first);
  return s == kRoot ? size_ : state(s).count;
}

void SuffixAutomaton::Continuations(const SuffixContext& context, int most,
                                    std::vector<Continuation>& out) const {
  out.clear();
  auto from = static_cast<int32_t>(context.first);
  ++steps_;
  for (; from != kRoot && state(from).first_edge == kNone; from = state(from).link) ++steps_;
  if (from == kRoot) return;  // no context: anything may follow
  // The best so far, of equal ones the most recent first. What is left for the others may not reach the last.
  double left = 1;
  int visits = 0;
  for (int32_t e = state(from).first_edge; e != kNone && visits < max_continuations_; ++visits) {
    const Edge& edge = edges_[static_cast<size_t>(e)];
    ++steps_;
    e = edge.next;
    const double share = static_cast<double>(state(edge.to).count) / state(from).count;
    left -= share;
    const bool full = std::ssize(out) == most;
    if (!full || share > out.back().share) {
      if (full) out.pop_back();
      const auto place = std::find_if(out.begin(), out.end(), [&](const auto& o) { return o.share < share; });
      out.insert(place, {.token = edge.token, .share = share, .context = {.first = edge.to, .length = 0}});
    }
    if (std::ssize(out) == most && left < out.back().share) break;
  }
  for (Continuation& c : out)
    c.context = ContextOf(Shorten(static_cast<int32_t>(c.context.first), max_context_));
}

}  // namespace longspec
