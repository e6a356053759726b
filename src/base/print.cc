// SPDX-License-Identifier: Apache-2.0
#include "base/print.h"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace longspec {

std::string Print(const char* format, ...) {
  std::array<char, 512> buffer{};
  va_list args;
  va_start(args, format);
  std::vsnprintf(buffer.data(), buffer.size(), format, args);
  va_end(args);
  return buffer.data();
}

}  // namespace longspec
