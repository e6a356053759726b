// SPDX-License-Identifier: Apache-2.0
//
// The escapes of Python's string literals.
#pragma once

#include <string>
#include <string_view>

#include "longspec/status.h"

namespace longspec::jinja {

// Appends the meaning of a literal's content (without its quotes); unknown escapes stay as they are.
Status Unescape(std::string_view literal, std::string* out);

}  // namespace longspec::jinja
