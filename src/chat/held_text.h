// SPDX-License-Identifier: Apache-2.0
//
// Text that comes piece by piece: what of its end may yet become something else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace longspec::chat {

inline constexpr std::string_view kJsonSpace = " \n\t\r";

// How many bytes at the end of `text` may be the beginning of `wanted`, which it does not hold as a whole.
inline size_t HeldBack(std::string_view text, std::string_view wanted) {
  for (size_t n = std::min(text.size(), wanted.size() - 1); n > 0; --n) {
    if (wanted.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

// Follows JSON to the end of a value that is a list or an object.
class JsonScanner {
 public:
  // `depth`: brackets that are open before the text.
  explicit JsonScanner(int depth = 0) : depth_(depth) {}

  // How many bytes of `text` belong to it; *ended: its last bracket is closed. A bracket that closes what was
  // never opened does not belong to it.
  size_t Scan(std::string_view text, bool* ended) {
    size_t n = 0;
    for (*ended = false; n < text.size() && !*ended; ++n) {
      const char c = text[n];
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
        continue;
      }
      if (c == '}' && depth_ == 0) break;
      in_string_ = c == '"';
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') *ended = --depth_ <= 0;
    }
    return n;
  }

 private:
  int depth_;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace longspec::chat
