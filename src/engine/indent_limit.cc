// SPDX-License-Identifier: Apache-2.0
#include "engine/indent_limit.h"

#include <cstddef>

namespace longspec {

std::string_view IndentLimit::Push(std::string_view piece) {
  if (n_indent_ <= 0) return piece;
  for (size_t i = 0; i < piece.size(); ++i) {
    const char c = piece[i];
    if (in_indent_ && (c == ' ' || c == '\t')) {
      ++indent_;
      continue;
    }
    if (in_indent_ && indent_ < n_indent_) {  // an empty line, too
      reached_ = true;
      return piece.substr(0, i);
    }
    in_indent_ = c == '\n';
    indent_ = 0;
  }
  return piece;
}

}  // namespace longspec
