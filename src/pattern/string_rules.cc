// SPDX-License-Identifier: Apache-2.0
#include "pattern/string_rules.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "pattern/formats.h"
#include "pattern/regex.h"

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLineBegin = "(?string)";  // no pattern begins like this
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
constexpr size_t kMostWaits = 4'000'000;  // entries of four bytes
// Repetitions up to this number are written out.
constexpr int64_t kFewRepetitions = 16;

// How many characters each of its texts has, if that is one number.
std::optional<int64_t> FixedLength(const Regex& regex) {
  switch (regex.kind) {
    case Regex::Kind::kSet:
      return 1;
    case Regex::Kind::kChoice: {
      const auto first = FixedLength(regex.parts.front());
      for (const Regex& part : regex.parts) {
        if (FixedLength(part) != first) return std::nullopt;
      }
      return first;
    }
    case Regex::Kind::kRepeat: {
      const auto length = FixedLength(regex.parts.front());
      if (!length || (*length > 0 && regex.least != regex.most)) return std::nullopt;
      return *length > 0 && regex.least > kMostStringLength / *length ? std::nullopt
                                                                      : std::optional(*length * regex.least);
    }
    default: {
      int64_t sum = 0;
      for (const Regex& part : regex.parts) {
        const auto length = FixedLength(part);
        if (!length) return std::nullopt;
        sum = std::min(sum + *length, 2 * kMostStringLength);
      }
      return sum;
    }
  }
}

struct Lengths {
  int64_t min = 0, max = kUnlimited;
};

// Where all but one repetition of a pattern have one length, that of the text says how often it repeats:
// ^[a-z][a-z0-9]{0,500}$ is ^[a-z][a-z0-9]*$ with from 1 to 501 characters.
std::optional<Lengths> TakeRepetition(Regex& whole) {
  std::vector<Regex*> parts;
  if (whole.kind == Regex::Kind::kSequence) {
    for (Regex& part : whole.parts) parts.push_back(&part);
  } else {
    parts.push_back(&whole);
  }
  // The one whose length varies; if none does, one that repeats often.
  Regex* repeat = nullptr;
  int n_varying = 0;
  int64_t others = 0;
  for (Regex* const part : parts) {
    const auto length = FixedLength(*part);
    if (!length) ++n_varying;
    const bool repeats =
        part->kind == Regex::Kind::kRepeat && std::max(part->least, part->most) > kFewRepetitions;
    if (repeats && (!length || repeat == nullptr)) repeat = part;
  }
  if (repeat == nullptr || n_varying > 1 || (n_varying == 1 && FixedLength(*repeat))) return std::nullopt;
  for (Regex* const part : parts) {
    if (part != repeat) others += *FixedLength(*part);
  }
  if (others > kMostStringLength) return std::nullopt;
  const auto each = FixedLength(repeat->parts.front());
  if (!each || *each == 0 || *each > kMostStringLength) return std::nullopt;
  Lengths lengths{.min = others + *each * repeat->least};
  if (repeat->most != Regex::kAnyNumber) lengths.max = others + *each * repeat->most;
  repeat->least = 0;
  repeat->most = Regex::kAnyNumber;
  return lengths;
}

CodePoints AllBut(std::vector<char> characters) {
  std::vector<CodePointRange> ranges;
  for (const char c : characters) ranges.push_back({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
  return CodePoints(std::move(ranges)).Complement();
}

// Each of its first characters in a text begins a part of it, after which something else comes, or the end.
Regex TextsWithout(const std::string& part) {
  const Regex rest = Regex::Repeat(Regex::Set(AllBut({part.front()})), 0, Regex::kAnyNumber);
  Regex begun{.kind = Regex::Kind::kChoice};
  std::vector<Regex> prefix;
  for (size_t i = 0; i + 1 < part.size(); ++i) {
    const auto c = static_cast<uint32_t>(part[i]);
    prefix.push_back(Regex::Set(CodePoints({{c, c}})));
    std::vector<Regex> other = {Regex::Set(AllBut({part.front(), part[i + 1]})), rest};
    std::vector<Regex> sequence = prefix;
    sequence.push_back(Regex::Repeat(Regex::Sequence(std::move(other)), 0, 1));
    begun.parts.push_back(Regex::Sequence(std::move(sequence)));
  }
  return Regex::Sequence({rest, Regex::Repeat(std::move(begun), 0, Regex::kAnyNumber)});
}

}  // namespace

std::string StringRulesLine(const StringRules& rules) {
  Json line = Json::object();
  if (!rules.patterns.empty()) line["patterns"] = rules.patterns;
  if (!rules.format.empty()) line["format"] = rules.format;
  if (!rules.others.empty()) line["others"] = rules.others;
  if (rules.min_length > 0) line["min"] = rules.min_length;
  if (rules.max_length != StringRules::kNoMost) line["max"] = rules.max_length;
  if (rules.full_match) line["full"] = true;
  if (rules.bare) line["bare"] = true;
  if (!rules.without.empty()) line["without"] = rules.without;
  return std::string(kLineBegin) + line.dump(-1, ' ', /*ensure_ascii=*/true);
}

bool IsStringRulesLine(std::string_view line) { return line.starts_with(kLineBegin); }

StringRules ParseStringRulesLine(std::string_view line) {
  const Json json = Json::parse(line.substr(kLineBegin.size()));
  StringRules rules;
  rules.patterns = json.value("patterns", rules.patterns);
  rules.format = json.value("format", rules.format);
  rules.others = json.value("others", rules.others);
  rules.min_length = json.value("min", rules.min_length);
  rules.max_length = json.value("max", rules.max_length);
  rules.full_match = json.value("full", rules.full_match);
  rules.bare = json.value("bare", rules.bare);
  rules.without = json.value("without", rules.without);
  return rules;
}

// Least and most characters to the end.
void StringAutomaton::MeasureEnds() {
  const size_t n = text_.edges.size();
  std::vector<std::vector<size_t>> from(n);
  std::vector<size_t> open, n_ahead(n, 0);
  least_.assign(n, kUnlimited);
  for (size_t i = 0; i < n; ++i) {
    for (const auto& edge : text_.edges[i]) from[static_cast<size_t>(edge.target)].push_back(i);
    n_ahead[i] = text_.edges[i].size();
    if (!text_.accepts[i]) continue;
    least_[i] = 0;
    open.push_back(i);
  }
  for (size_t next = 0; next < open.size(); ++next) {
    for (const size_t before : from[open[next]]) {
      if (least_[before] != kUnlimited) continue;
      least_[before] = least_[open[next]] + 1;
      open.push_back(before);
    }
  }
  largest_least_ = *std::ranges::max_element(least_);
  // A state whose ways all end is known once those ahead of it are; the others have a cycle before them.
  most_.assign(n, kUnlimited);
  open.clear();
  for (size_t i = 0; i < n; ++i) {
    if (n_ahead[i] == 0) open.push_back(i);
  }
  for (size_t next = 0; next < open.size(); ++next) {
    const size_t state = open[next];
    most_[state] = 0;
    for (const auto& edge : text_.edges[state])
      most_[state] = std::max(most_[state], most_[static_cast<size_t>(edge.target)] + 1);
    for (const size_t before : from[state]) {
      if (--n_ahead[before] == 0) open.push_back(before);
    }
  }
  all_unlimited_ = open.empty();
}

// Lengths of ways to the end, one by one, until they repeat themselves.
Status StringAutomaton::MeasureWaits(PatternWork& work) {
  const size_t n = text_.edges.size();
  size_t n_edges = 0;
  for (const auto& edges : text_.edges) n_edges += edges.size();
  std::vector<std::vector<bool>> ends = {text_.accepts};  // [k][state]: with k characters
  std::map<std::vector<bool>, size_t> known = {{text_.accepts, 0}};
  cycle_ = 0;
  while (cycle_ == 0 && static_cast<int64_t>(ends.size()) <= max_length_) {
    std::vector<bool> next(n, false);
    for (size_t i = 0; i < n; ++i) {
      next[i] = std::ranges::any_of(
          text_.edges[i], [&](const auto& edge) { return ends.back()[static_cast<size_t>(edge.target)]; });
    }
    const auto [at, is_new] = known.emplace(next, ends.size());
    if (is_new) {
      ends.push_back(std::move(next));
    } else {
      cycle_begin_ = at->second;
      cycle_ = ends.size() - cycle_begin_;
    }
    if (ends.size() * n > kMostWaits || !work.Spend(n_edges + n))
      return Unsupported("a pattern that becomes too large beside lengths is not supported");
  }
  wait_.assign(n, std::vector<int32_t>(ends.size(), kNever));
  longest_wait_ = 0;
  for (size_t i = 0; i < n; ++i) {
    int32_t wait = kNever;
    for (size_t k = ends.size() + cycle_; k-- > 0;) {
      const size_t folded = k < ends.size() ? k : k - cycle_;
      wait = ends[folded][i] ? 0 : wait == kNever ? kNever : wait + 1;
      if (k < ends.size()) wait_[i][k] = wait;
    }
    longest_wait_ = std::max<int64_t>(longest_wait_, *std::ranges::max_element(wait_[i]));
  }
  return {};
}

bool StringAutomaton::CanEndText(int32_t state, int64_t length) const {
  const auto s = static_cast<size_t>(state);
  const int64_t needed = std::max<int64_t>(0, min_length_ - length);
  if (max_length_ == StringRules::kNoMost) return most_[s] >= needed;
  const int64_t left = max_length_ - length;
  if (needed == 0 || wait_.empty()) return least_[s] <= left;
  auto n = static_cast<size_t>(needed);
  if (n >= wait_[s].size()) {
    if (cycle_ == 0) return false;
    n = cycle_begin_ + (n - cycle_begin_) % cycle_;
  }
  return wait_[s][n] != kNever && needed + wait_[s][n] <= left;
}

bool StringAutomaton::CanEnd(int32_t state, int64_t length) const {
  if (!HasLengths()) return true;
  if (BeginsCharacter(state)) return CanEndText(state, length);
  return std::ranges::any_of(bytes_.ahead[static_cast<size_t>(state) - text_.edges.size()],
                             [&](int32_t next) { return CanEndText(next, length); });
}

int64_t StringAutomaton::FreeCharacters(int64_t length) const {
  if (min_length_ > length) {
    if (max_length_ == StringRules::kNoMost ? !all_unlimited_ : longest_wait_ > max_length_ - min_length_)
      return 0;
  }
  if (max_length_ == StringRules::kNoMost) return kUnlimited;
  return std::max<int64_t>(0, max_length_ - length - largest_least_);
}

size_t StringAutomaton::bytes() const {
  const auto of = [](const auto& lists) {
    size_t n = 0;
    for (const auto& list : lists) n += sizeof(list) + list.capacity() * sizeof(list.front());
    return n;
  };
  return of(text_.edges) + of(bytes_.edges) + of(bytes_.ahead) + of(wait_) +
         (least_.capacity() + most_.capacity()) * sizeof(int64_t);
}

bool StringAutomaton::Describes(std::string_view text) const {
  int64_t length = 0;
  std::vector<int32_t> states = {0};
  for (const char c : bare_ ? std::string(text) : JsonEscaped(text)) {
    const auto byte = static_cast<uint8_t>(c);
    std::vector<int32_t> next;
    if (!states.empty() && BeginsCharacter(states.front())) ++length;
    for (const int32_t state : states) {
      for (const ByteEdge& edge : bytes_.edges[static_cast<size_t>(state)]) {
        if (edge.first <= byte && byte <= edge.last) next.push_back(edge.target);
      }
    }
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    states = std::move(next);
  }
  return IsRightLength(length) && std::ranges::any_of(states, [&](int32_t s) { return Accepts(s); });
}

Result<StringAutomaton> CompileStringRules(const StringRules& rules, PatternWork& work) {
  Lengths lengths{.min = rules.min_length};
  if (rules.max_length != StringRules::kNoMost) lengths.max = rules.max_length;
  std::vector<Regex> wholes;
  const auto add = [&](Regex whole) {
    if (const auto taken = TakeRepetition(whole)) {
      lengths.min = std::max(lengths.min, taken->min);
      lengths.max = std::min(lengths.max, taken->max);
    }
    wholes.push_back(std::move(whole));
  };
  for (const std::string& pattern : rules.patterns) {
    LS_ASSIGN(const Regex regex, ParseRegex(pattern));
    LS_ASSIGN(Regex whole, rules.full_match ? FullMatch(regex) : WholeText(regex));
    add(std::move(whole));
  }
  if (!rules.without.empty()) wholes.push_back(TextsWithout(rules.without));
  if (IsUnsupportedFormat(rules.format))
    return Unsupported("the format " + rules.format + " is not supported");
  if (const auto format = KnownFormat(rules.format)) {
    LS_ASSIGN(Regex whole, ParseRegex(format->pattern));
    add(std::move(whole));
    if (format->max_length >= 0) lengths.max = std::min(lengths.max, format->max_length);
  }
  if (lengths.min > lengths.max) return InvalidArgument("no text could satisfy it");
  if (lengths.min > kMostStringLength)
    return Unsupported("texts of " + std::to_string(lengths.min) + " characters or more are not supported");

  StringAutomaton automaton;
  automaton.min_length_ = lengths.min;
  automaton.max_length_ = lengths.max > kMostStringLength ? StringRules::kNoMost : lengths.max;
  LS_ASSIGN(automaton.text_, IntersectionOf(wholes, rules.others, work));
  automaton.bare_ = rules.bare;
  automaton.bytes_ =
      rules.bare ? Utf8Bytes(automaton.text_) : JsonBytes(automaton.text_, /*all_escapes=*/wholes.empty());
  automaton.MeasureEnds();
  if (automaton.min_length_ > 0 && automaton.max_length_ != StringRules::kNoMost)
    LS_TRY(automaton.MeasureWaits(work));
  if (!automaton.CanEnd(0, 0)) return InvalidArgument("no text could satisfy it");
  return automaton;
}

}  // namespace longspec
