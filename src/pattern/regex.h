// SPDX-License-Identifier: Apache-2.0
//
// Regular expressions as JSON schemas have them (ECMA-262), read into a tree. Where dialects differ in what a
// class holds (\w of Python knows letters that ECMA's does not), it is what all of them agree on: a text that
// such a tree describes fits the pattern for every reader. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "longspec/status.h"
#include "pattern/code_points.h"

namespace longspec {

struct Regex {
  enum class Kind : uint8_t { kSet, kSequence, kChoice, kRepeat, kBegin, kEnd };
  static constexpr int64_t kAnyNumber = -1;

  Kind kind = Kind::kSequence;  // without parts: the empty text
  CodePoints set;               // kSet: one of these characters
  std::vector<Regex> parts;     // kRepeat: one
  int64_t least = 0, most = 0;  // kRepeat; `most` may be kAnyNumber

  static Regex Set(CodePoints set) { return {.kind = Kind::kSet, .set = std::move(set)}; }
  static Regex Sequence(std::vector<Regex> parts) { return {.parts = std::move(parts)}; }
  static Regex Repeat(Regex part, int64_t least, int64_t most);
};

inline constexpr int kMostRegexNesting = 100;              // groups within each other
inline constexpr int64_t kMostRegexCount = 1'000'000'000;  // of repetitions; more is as good as any number

// As it is written, anchors included. The text is UTF-8. kInvalidArgument: it is no pattern; kUnsupported: it
// has what is not regular, such as (?=a), or what dialects read differently. Messages begin with a small
// letter.
Result<Regex> ParseRegex(std::string_view text);

// The texts that the pattern describes, as a whole, without anchors. A pattern with one anchor goes on on the
// other side; one without any would allow any text around what it is about, and stands for that alone.
Result<Regex> WholeText(const Regex& pattern);

// The same for a pattern that must match all of a text, as Python's re.fullmatch has it: anchors at its ends
// say nothing more.
Result<Regex> FullMatch(const Regex& pattern);

}  // namespace longspec
