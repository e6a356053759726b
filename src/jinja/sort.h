// SPDX-License-Identifier: Apache-2.0
//
// A stable sort whose comparison may fail and need not be consistent, as values of a template's choice are.
#pragma once

#include <functional>
#include <vector>

#include "jinja/runtime.h"
#include "longspec/status.h"

namespace longspec::jinja {

using SortKey = std::function<Result<Value>(const Value&)>;

// sorted(values, key=key, reverse=reverse): equal values keep their order either way.
Status SortValues(Runtime& runtime, bool reverse, const SortKey& key, std::vector<Value>* values);

}  // namespace longspec::jinja
