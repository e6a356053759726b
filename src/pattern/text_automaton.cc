// SPDX-License-Identifier: Apache-2.0
#include "pattern/text_automaton.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "base/utf8.h"

namespace longspec {
namespace {

constexpr size_t kMostStatesWritten = 20'000;  // with repetitions written out

Status TooLarge() { return Unsupported("a pattern that becomes too large is not supported"); }

// Characters that no set tells apart are one letter.
class Alphabet {
 public:
  // In any order.
  void Add(const CodePoints& set) { sets_.insert(set.ranges()); }

  Status Finish(PatternWork& work) {
    std::vector<uint32_t> cuts = {0};
    for (const auto& set : sets_) {
      for (const CodePointRange& range : set) {
        cuts.push_back(range.first);
        cuts.push_back(range.last + 1);
      }
    }
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (!work.Spend(cuts.size() * sets_.size())) return TooLarge();
    std::map<std::vector<bool>, int> letters;
    for (size_t i = 0; i < cuts.size() && cuts[i] <= kMostCodePoint; ++i) {
      std::vector<bool> within;
      for (const auto& set : sets_) within.push_back(Contains(set, cuts[i]));
      const auto [at, is_new] = letters.emplace(std::move(within), static_cast<int>(ranges_.size()));
      if (is_new) ranges_.emplace_back();
      const uint32_t next = i + 1 < cuts.size() ? cuts[i + 1] : kMostCodePoint + 1;
      ranges_[static_cast<size_t>(at->second)].push_back({cuts[i], next - 1});
    }
    return {};
  }

  size_t size() const { return ranges_.size(); }
  CodePoints Letter(int letter) const { return CodePoints(ranges_[static_cast<size_t>(letter)]); }

  int LetterOf(uint32_t code_point) const {
    const auto of = [&](const auto& ranges) { return Contains(ranges, code_point); };
    return static_cast<int>(std::ranges::find_if(ranges_, of) - ranges_.begin());
  }
  std::vector<int> LettersOf(const CodePoints& set) const {
    std::vector<int> letters;
    for (size_t i = 0; i < ranges_.size(); ++i) {
      if (set.Contains(ranges_[i].front().first)) letters.push_back(static_cast<int>(i));
    }
    return letters;
  }

 private:
  static bool Contains(const std::vector<CodePointRange>& set, uint32_t code_point) {
    const auto after = std::ranges::upper_bound(set, code_point, {}, &CodePointRange::first);
    return after != set.begin() && std::prev(after)->last >= code_point;
  }

  struct Less {
    bool operator()(const std::vector<CodePointRange>& a, const std::vector<CodePointRange>& b) const {
      return std::ranges::lexicographical_compare(a, b, [](const CodePointRange& x, const CodePointRange& y) {
        return std::pair(x.first, x.last) < std::pair(y.first, y.last);
      });
    }
  };
  std::set<std::vector<CodePointRange>, Less> sets_;
  std::vector<std::vector<CodePointRange>> ranges_;  // by letter
};

// Over letters; state 0 is the first.
struct Machine {
  struct Edge {
    int letter, target;
    auto operator<=>(const Edge&) const = default;
  };
  std::vector<std::vector<Edge>> edges;
  std::vector<bool> accepts;
  bool deterministic = false;

  int Add() {
    edges.emplace_back();
    accepts.push_back(false);
    return static_cast<int>(edges.size()) - 1;
  }
  size_t NumEdges() const {
    size_t n = 0;
    for (const auto& of_state : edges) n += of_state.size();
    return n;
  }
};

// From a tree to a machine, by way of one with moves that read nothing.
class Writer {
 public:
  Writer(const Alphabet& alphabet, PatternWork& work) : alphabet_(alphabet), work_(work) {}

  Result<Machine> Write(const Regex& whole) {
    const int begin = NewState();
    LS_ASSIGN(const int end, Add(whole, begin));
    if (auto small = Determined(end)) return *std::move(small);
    return Undetermined(end);
  }

 private:
  struct State {
    std::vector<int> silent;
    std::vector<int> letters;  // that lead to `target`
    int target = -1;
  };

  int NewState() {
    states_.emplace_back();
    return static_cast<int>(states_.size()) - 1;
  }
  void Connect(int from, int to) { states_[static_cast<size_t>(from)].silent.push_back(to); }

  // The state where what begins at `from` ends.
  Result<int> Add(const Regex& part, int from) {
    if (states_.size() > kMostStatesWritten || ++n_parts_ > kMostStatesWritten) return TooLarge();
    switch (part.kind) {
      case Regex::Kind::kSet:
        return AddSet(part.set, from);
      case Regex::Kind::kChoice: {
        const int end = NewState();
        for (const Regex& option : part.parts) {
          const int begin = NewState();
          Connect(from, begin);
          LS_ASSIGN(const int option_end, Add(option, begin));
          Connect(option_end, end);
        }
        return end;
      }
      case Regex::Kind::kRepeat:
        return AddRepeat(part, from);
      default:
        for (const Regex& next : part.parts) {
          LS_ASSIGN(from, Add(next, from));
        }
        return from;
    }
  }

  int AddSet(const CodePoints& set, int from) {
    // The state may have a set already, of what came before within a loop.
    const int begin = NewState(), end = NewState();
    Connect(from, begin);
    states_[static_cast<size_t>(begin)].letters = alphabet_.LettersOf(set);
    states_[static_cast<size_t>(begin)].target = end;
    return end;
  }

  Result<int> AddRepeat(const Regex& repeat, int from) {
    const Regex& part = repeat.parts.front();
    for (int64_t i = 0; i < repeat.least; ++i) {
      LS_ASSIGN(from, Add(part, from));
    }
    const int end = NewState();
    Connect(from, end);
    if (repeat.most == Regex::kAnyNumber) {
      LS_ASSIGN(const int again, Add(part, end));
      Connect(again, end);
      return end;
    }
    for (int64_t i = repeat.least; i < repeat.most; ++i) {
      LS_ASSIGN(from, Add(part, from));
      Connect(from, end);
    }
    return end;
  }

  // The states that are reached without reading, those alone that read or end.
  std::vector<int> Closure(std::vector<int> open, int end) {
    std::vector<int> closure;
    ++stamp_;
    seen_.resize(states_.size(), 0);
    while (!open.empty()) {
      const int state = open.back();
      open.pop_back();
      const auto s = static_cast<size_t>(state);
      if (std::exchange(seen_[s], stamp_) == stamp_) continue;
      ++steps_;
      if (states_[s].target >= 0 || state == end) closure.push_back(state);
      open.insert(open.end(), states_[s].silent.begin(), states_[s].silent.end());
    }
    std::ranges::sort(closure);
    return closure;
  }

  // One state for each set of states that it can be in; nothing if these are too many.
  std::optional<Machine> Determined(int end) {
    Machine machine;
    machine.deterministic = true;
    std::map<std::vector<int>, int> known;
    std::vector<std::vector<int>> open;
    const auto state_of = [&](std::vector<int> closure) {
      const auto [at, is_new] = known.emplace(std::move(closure), static_cast<int>(known.size()));
      if (is_new) {
        machine.Add();
        machine.accepts.back() = std::ranges::binary_search(at->first, end);
        open.push_back(at->first);
      }
      return at->second;
    };
    state_of(Closure({0}, end));
    for (size_t i = 0; i < open.size(); ++i) {
      std::map<int, std::vector<int>> targets;
      for (const int state : std::vector<int>(open[i])) {
        const State& from = states_[static_cast<size_t>(state)];
        steps_ += from.letters.size();
        for (const int letter : from.letters) targets[letter].push_back(from.target);
      }
      std::map<std::vector<int>, int> of_targets;
      for (auto& [letter, reached] : targets) {
        auto at = of_targets.find(reached);
        if (at == of_targets.end()) {
          const int target = state_of(Closure(reached, end));
          at = of_targets.emplace(std::move(reached), target).first;
        }
        machine.edges[i].push_back({letter, at->second});
      }
      if (open.size() > kMostTextStates || !Spend()) return std::nullopt;
    }
    return machine;
  }

  Result<Machine> Undetermined(int end) {
    Machine machine;
    std::vector<int> open = {0};
    std::map<int, int> known = {{0, machine.Add()}};
    for (size_t i = 0; i < open.size(); ++i) {
      for (const int state : Closure({open[i]}, end)) {
        const State& from = states_[static_cast<size_t>(state)];
        if (state == end) machine.accepts[i] = true;
        if (from.target < 0) continue;
        const auto [at, is_new] = known.emplace(from.target, static_cast<int>(known.size()));
        if (is_new) {
          machine.Add();
          open.push_back(from.target);
        }
        for (const int letter : from.letters) machine.edges[i].push_back({letter, at->second});
        steps_ += from.letters.size();
      }
      if (open.size() > kMostTextStates || !Spend()) return TooLarge();
    }
    return machine;
  }

  bool Spend() { return work_.Spend(std::exchange(steps_, 0)); }

  const Alphabet& alphabet_;
  PatternWork& work_;
  std::vector<State> states_;
  size_t n_parts_ = 0, steps_ = 0;
  std::vector<int> seen_;
  int stamp_ = 0;
};

Result<Machine> Product(const Machine& a, const Machine& b, PatternWork& work) {
  Machine both;
  both.deterministic = a.deterministic && b.deterministic;
  std::map<std::pair<int, int>, int> known;
  std::vector<std::pair<int, int>> open;
  const auto state_of = [&](int x, int y) {
    const auto [at, is_new] = known.emplace(std::pair(x, y), static_cast<int>(known.size()));
    if (is_new) {
      both.Add();
      both.accepts.back() = a.accepts[static_cast<size_t>(x)] && b.accepts[static_cast<size_t>(y)];
      open.emplace_back(x, y);
    }
    return at->second;
  };
  state_of(0, 0);
  for (size_t i = 0; i < open.size(); ++i) {
    const auto [x, y] = open[i];
    std::multimap<int, int> of_letter;
    for (const auto& edge : b.edges[static_cast<size_t>(y)]) of_letter.emplace(edge.letter, edge.target);
    for (const auto& edge : a.edges[static_cast<size_t>(x)]) {
      const auto [first, last] = of_letter.equal_range(edge.letter);
      for (auto at = first; at != last; ++at) {
        const int target = state_of(edge.target, at->second);
        both.edges[i].push_back({edge.letter, target});
      }
    }
    if (open.size() > kMostStatesWritten || !work.Spend(both.edges[i].size() + of_letter.size()))
      return TooLarge();
  }
  return both;
}

// Without the states from which nothing is accepted. Nothing if none is left.
std::optional<Machine> Trimmed(const Machine& machine) {
  const size_t n = machine.edges.size();
  std::vector<std::vector<size_t>> from(n);
  std::vector<size_t> open;
  std::vector<bool> kept = machine.accepts;
  for (size_t i = 0; i < n; ++i) {
    for (const auto& edge : machine.edges[i]) from[static_cast<size_t>(edge.target)].push_back(i);
    if (kept[i]) open.push_back(i);
  }
  while (!open.empty()) {
    const size_t state = open.back();
    open.pop_back();
    for (const size_t before : from[state]) {
      if (kept[before]) continue;
      kept[before] = true;
      open.push_back(before);
    }
  }
  if (!kept[0]) return std::nullopt;
  std::vector<int> number(n, -1);
  int next = 0;
  for (size_t i = 0; i < n; ++i) {
    if (kept[i]) number[i] = next++;
  }
  Machine trimmed;
  trimmed.deterministic = machine.deterministic;
  for (size_t i = 0; i < n; ++i) {
    if (!kept[i]) continue;
    const auto state = static_cast<size_t>(trimmed.Add());
    trimmed.accepts[state] = machine.accepts[i];
    for (const auto& edge : machine.edges[i]) {
      const int target = number[static_cast<size_t>(edge.target)];
      if (target >= 0) trimmed.edges[state].push_back({edge.letter, target});
    }
    std::ranges::sort(trimmed.edges[state]);
  }
  return trimmed;
}

// States that nothing tells apart become one. Given up where that takes too long.
Machine Minimised(Machine machine, PatternWork& work) {
  const size_t n = machine.edges.size();
  std::vector<int> block(n);
  for (size_t i = 0; i < n; ++i) block[i] = machine.accepts[i] ? 1 : 0;
  size_t n_blocks = 0;
  while (true) {
    std::map<std::vector<int>, int> known;
    std::vector<int> next(n);
    for (size_t i = 0; i < n; ++i) {
      std::vector<int> signature = {block[i]};
      for (const auto& edge : machine.edges[i]) {
        signature.push_back(edge.letter);
        signature.push_back(block[static_cast<size_t>(edge.target)]);
      }
      next[i] = known.emplace(std::move(signature), static_cast<int>(known.size())).first->second;
    }
    block = std::move(next);
    if (known.size() == n_blocks) break;
    n_blocks = known.size();
    if (n_blocks == n || !work.Spend(machine.NumEdges() + n)) return machine;
  }
  // State 0 is the first of its block, and blocks are numbered as they are met.
  Machine minimal;
  minimal.deterministic = machine.deterministic;
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<size_t>(block[i]) < minimal.edges.size()) continue;
    const auto state = static_cast<size_t>(minimal.Add());
    minimal.accepts[state] = machine.accepts[i];
    for (const auto& edge : machine.edges[i])
      minimal.edges[state].push_back({edge.letter, block[static_cast<size_t>(edge.target)]});
  }
  return minimal;
}

std::vector<uint32_t> CodePointsOf(std::string_view text) {
  std::vector<uint32_t> code_points;
  for (size_t i = 0; i < text.size();) {
    const Utf8CodePoint c = DecodeUtf8(text.substr(i));
    code_points.push_back(c.value);
    i += c.length;
  }
  return code_points;
}

// All texts but these.
Machine AllBut(const std::vector<std::string>& texts, const Alphabet& alphabet) {
  Machine machine;
  machine.deterministic = true;
  std::vector<std::map<int, int>> next;
  const auto add = [&] {
    next.emplace_back();
    machine.Add();
    machine.accepts.back() = true;
    return static_cast<int>(next.size()) - 1;
  };
  const int root = add(), any = texts.empty() ? root : add();
  for (const std::string& text : texts) {
    int state = root;
    for (const uint32_t code_point : CodePointsOf(text)) {
      const int letter = alphabet.LetterOf(code_point);
      const auto [at, is_new] = next[static_cast<size_t>(state)].emplace(letter, -1);
      if (is_new) {
        const int added = add();
        next[static_cast<size_t>(state)][letter] = added;
        state = added;
      } else {
        state = at->second;
      }
    }
    machine.accepts[static_cast<size_t>(state)] = false;
  }
  for (size_t i = 0; i < next.size(); ++i) {
    for (int letter = 0; letter < static_cast<int>(alphabet.size()); ++letter) {
      const auto at = next[i].find(letter);
      machine.edges[i].push_back({letter, at == next[i].end() ? any : at->second});
    }
  }
  return machine;
}

void AddSets(const Regex& regex, Alphabet& alphabet) {
  if (regex.kind == Regex::Kind::kSet) alphabet.Add(regex.set);
  for (const Regex& part : regex.parts) AddSets(part, alphabet);
}

TextAutomaton WithRanges(const Machine& machine, const Alphabet& alphabet) {
  TextAutomaton automaton;
  automaton.accepts = machine.accepts;
  automaton.edges.resize(machine.edges.size());
  for (size_t i = 0; i < machine.edges.size(); ++i) {
    std::map<int, std::vector<CodePointRange>> by_target;
    for (const auto& edge : machine.edges[i]) {
      const CodePoints letter = alphabet.Letter(edge.letter);
      auto& ranges = by_target[edge.target];
      ranges.insert(ranges.end(), letter.ranges().begin(), letter.ranges().end());
    }
    for (auto& [target, ranges] : by_target) {
      const CodePoints joined(std::move(ranges));
      for (const CodePointRange& range : joined.ranges())
        automaton.edges[i].push_back({range.first, range.last, target});
    }
  }
  return automaton;
}

}  // namespace

Result<TextAutomaton> IntersectionOf(const std::vector<Regex>& wholes, const std::vector<std::string>& others,
                                     PatternWork& work) {
  Alphabet alphabet;
  alphabet.Add(CodePoints::All());
  for (const Regex& whole : wholes) AddSets(whole, alphabet);
  for (const std::string& other : others) {
    for (const uint32_t code_point : CodePointsOf(other))
      alphabet.Add(CodePoints({{code_point, code_point}}));
  }
  LS_TRY(alphabet.Finish(work));
  Machine all = AllBut(others, alphabet);
  for (const Regex& whole : wholes) {
    LS_ASSIGN(const Machine next, Writer(alphabet, work).Write(whole));
    LS_ASSIGN(all, Product(all, next, work));
  }
  auto trimmed = Trimmed(all);
  if (!trimmed) return InvalidArgument("no text could satisfy it");
  if (trimmed->deterministic) trimmed = Minimised(*std::move(trimmed), work);
  if (trimmed->edges.size() > kMostTextStates) return TooLarge();
  return WithRanges(*trimmed, alphabet);
}

}  // namespace longspec
