// SPDX-License-Identifier: Apache-2.0
//
// How the characters of a text are written within the quotation marks of JSON, as UTF-8 or as escapes, and
// without them. Pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "pattern/text_automaton.h"

namespace longspec {

struct ByteEdge {
  uint8_t first, last;  // bytes
  int32_t target;
  bool operator==(const ByteEdge& other) const { return Key() == other.Key(); }
  bool operator<(const ByteEdge& other) const { return Key() < other.Key(); }
  std::tuple<uint8_t, uint8_t, int32_t> Key() const { return {first, last, target}; }
};

struct ByteAutomaton {
  // The states of the text come first, with their numbers; then those within a character.
  std::vector<std::vector<ByteEdge>> edges;
  // Of each state within a character, the states of the text that it can lead to.
  std::vector<std::vector<int32_t>> ahead;
};

// With all_escapes as anything that JSON reads as the text; without, a character is written as itself where
// JSON allows that, and otherwise in one way.
ByteAutomaton JsonBytes(const TextAutomaton& text, bool all_escapes);

// With each character as itself, where no quotation marks stand around the text.
ByteAutomaton Utf8Bytes(const TextAutomaton& text);

// The text, in UTF-8, written in one such way.
std::string JsonEscaped(std::string_view text);

}  // namespace longspec
