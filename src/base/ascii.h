// SPDX-License-Identifier: Apache-2.0
//
// Text of which only letters of ASCII count, such as names in HTTP.
#pragma once

#include <string>
#include <string_view>

namespace longspec {

// A to Z as small letters; everything else stays.
inline std::string LowerAscii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace longspec
