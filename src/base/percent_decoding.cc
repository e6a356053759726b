// SPDX-License-Identifier: Apache-2.0
#include "base/percent_decoding.h"

#include <charconv>
#include <cstdint>

namespace longspec {

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    const std::string_view digits = text[i] == '%' ? text.substr(i + 1, 2) : std::string_view();
    const char* end = digits.data() + digits.size();
    if (digits.size() == 2 && std::from_chars(digits.data(), end, byte, 16).ptr == end) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace longspec
