// SPDX-License-Identifier: Apache-2.0
//
// What a JSON schema says of a string, or a regular expression of a whole answer, and the automaton over the
// bytes between its quotation marks that keeps to all of it at once: patterns, a format, texts that it may
// not be. Lengths are not in the states of the automaton: who walks it counts characters, and asks whether a
// state can still end in time. So a bound of a million costs what one of ten does. Values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"
#include "pattern/json_bytes.h"
#include "pattern/text_automaton.h"

namespace longspec {

struct StringRules {
  static constexpr int64_t kNoMost = -1;

  std::vector<std::string> patterns;  // each must match
  std::string format;                 // empty: none; one that KnownFormat does not know is none
  std::vector<std::string> others;    // that it must not be
  int64_t min_length = 0;             // in characters
  int64_t max_length = kNoMost;
  bool full_match = false;  // patterns are of all of it (FullMatch)
  bool bare = false;        // it stands as it is, without quotation marks
  // That is nowhere in it. REQUIRES: ASCII, whose first character is in it once
  std::string without;

  bool operator==(const StringRules& other) const {
    return patterns == other.patterns && format == other.format && others == other.others &&
           min_length == other.min_length && max_length == other.max_length &&
           full_match == other.full_match && bare == other.bare && without == other.without;
  }
};

// As one line of ASCII, and back. A line that does not begin as one of these does is a pattern.
std::string StringRulesLine(const StringRules& rules);
bool IsStringRulesLine(std::string_view line);
// REQUIRES: IsStringRulesLine(line), and it is one
StringRules ParseStringRulesLine(std::string_view line);

// A longest text may be this long; a bound above says nothing.
inline constexpr int64_t kMostStringLength = 1'000'000'000;

class StringAutomaton {
 public:
  // State 0 is the first. JSON's escapes are in it: all of them where only lengths are asked for; else a
  // character is written as itself where JSON allows that, so that what is forced stays forced.
  const std::vector<std::vector<ByteEdge>>& edges() const { return bytes_.edges; }
  // Whether the string may end at this state, after a text of a right length.
  bool Accepts(int32_t state) const {
    return BeginsCharacter(state) && text_.accepts[static_cast<size_t>(state)];
  }
  // The bytes of an edge from here begin a character.
  bool BeginsCharacter(int32_t state) const { return static_cast<size_t>(state) < text_.edges.size(); }

  bool HasLengths() const { return min_length_ > 0 || max_length_ != StringRules::kNoMost; }
  // Whether a string that is at `state` after `length` characters, begun ones included, can become one of a
  // right length.
  bool CanEnd(int32_t state, int64_t length) const;
  bool IsRightLength(int64_t length) const {
    return length >= min_length_ && (max_length_ == StringRules::kNoMost || length <= max_length_);
  }
  // How many characters may follow, at least, whichever they are, before CanEnd has to be asked.
  int64_t FreeCharacters(int64_t length) const;
  size_t bytes() const;  // memory held, about
  // Whether the text, in UTF-8, keeps to the rules.
  bool Describes(std::string_view text) const;

  friend Result<StringAutomaton> CompileStringRules(const StringRules& rules, PatternWork& work);

 private:
  void MeasureEnds();
  Status MeasureWaits(PatternWork& work);
  bool CanEndText(int32_t state, int64_t length) const;

  TextAutomaton text_;
  bool bare_ = false;
  ByteAutomaton bytes_;  // its first states are those of text_
  int64_t min_length_ = 0, max_length_ = StringRules::kNoMost;
  // Characters until the end, by state of text_. most_: kNoMost where there is no limit.
  std::vector<int64_t> least_, most_;
  int64_t largest_least_ = 0;
  bool all_unlimited_ = true;
  // Where both bounds count: wait_[state][n], how many characters more than n there must be until the end, if
  // there must be n at least; kNever: there is no end. From n = cycle_begin_ on it repeats itself.
  std::vector<std::vector<int32_t>> wait_;
  size_t cycle_begin_ = 0, cycle_ = 0;
  int64_t longest_wait_ = 0;
};

// kInvalidArgument: a mistake, or no text could satisfy them; kUnsupported: what cannot be kept to. Messages
// begin with a small letter and have no place.
Result<StringAutomaton> CompileStringRules(const StringRules& rules, PatternWork& work);

}  // namespace longspec
