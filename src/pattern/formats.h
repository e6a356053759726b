// SPDX-License-Identifier: Apache-2.0
//
// The formats that a JSON schema may give a string. Each is written so that what it describes is right by the
// RFC that defines it and by stricter readers too: no leap second, no leading zero in an address. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pattern/regex.h"

namespace longspec {

struct StringFormat {
  std::string pattern;      // of the whole text
  int64_t max_length = -1;  // -1: any
};

// Nothing: nobody knows it, so it is a note.
std::optional<StringFormat> KnownFormat(std::string_view name);
// Whether it is one of JSON Schema's that no automaton describes.
bool IsUnsupportedFormat(std::string_view name);

}  // namespace longspec
