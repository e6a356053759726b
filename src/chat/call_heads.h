// SPDX-License-Identifier: Apache-2.0
//
// How a call of a tool begins in an answer: whether a text is that beginning, is not, or is too short to
// tell. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tools.h"

namespace longspec::chat {

struct CallHead {
  enum Outcome : uint8_t { kIs, kIsNot, kOpenEnded } outcome = kIsNot;
  std::string name;                       // empty: a list without calls
  bool in_list = false;                   // more calls may follow, after a comma
  bool any_name = false;                  // a tag says that it is a call
  bool tagged_arguments = false;          // each stands between tags of its own
  size_t length = 0;                      // bytes before the arguments
  std::vector<std::string_view> closers;  // what may close it, the outermost first
};

// Where in a line a text stands.
enum class Column : uint8_t {
  kFresh,     // nothing but white space was said before
  kFirst,     // at the beginning of a line
  kIndented,  // after spaces at the beginning of a line
  kWithin,
};

// A call, or a list of them, at the beginning of `text`. Where no tag says that it is one, it is one of a
// function that is offered.
CallHead ReadCallHead(const CallForm& form, std::string_view text, Column column);
// The next call of a list, without what separates it from the one before.
CallHead ReadNextOfList(const CallForm& form, std::string_view text, bool any_name);
// Where the first text that ReadCallHead may know begins, from `from` on; text.size(): nowhere.
size_t FindCallHead(std::string_view text, size_t from);

}  // namespace longspec::chat
