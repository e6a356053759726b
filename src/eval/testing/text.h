// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace longspec {

inline int Count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace longspec
