// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace longspec {

// What printf would write, up to 511 bytes.
__attribute__((format(printf, 1, 2))) std::string Print(const char* format, ...);

}  // namespace longspec
