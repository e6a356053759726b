// SPDX-License-Identifier: Apache-2.0
//
// Parses a template into its statements.
#pragma once

#include <string_view>

#include "jinja/ast.h"
#include "longspec/status.h"

namespace longspec::jinja {

// Syntax errors are kInvalidArgument, tags, filters and tests that are not offered kUnsupported; both name
// the line.
Result<Body> ParseTemplate(std::string_view source);

}  // namespace longspec::jinja
