// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace longspec {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "longspec: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace longspec
