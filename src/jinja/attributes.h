// SPDX-License-Identifier: Apache-2.0
//
// What filters mean by attribute="a.b.0" and by ignoring case.
#pragma once

#include <vector>

#include "jinja/runtime.h"
#include "longspec/status.h"

namespace longspec::jinja {

// The steps of a path: names, and integers where the path has digits. None is an empty path.
Result<std::vector<Value>> AttributePath(Runtime& runtime, const Value& attribute);
// Follows a path; what is undefined on the way becomes `otherwise` if that is given.
Result<Value> FollowPath(Runtime& runtime, const Value& object, const std::vector<Value>& path,
                         const Value* otherwise = nullptr);
// A text in small letters unless case matters; other values as they are.
Value FoldCase(Runtime& runtime, const Value& value, bool case_sensitive);

}  // namespace longspec::jinja
