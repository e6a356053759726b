// SPDX-License-Identifier: Apache-2.0
//
// JSON to and from values, as Python's json module reads and writes it.
#pragma once

#include <string_view>

#include "jinja/runtime.h"
#include "longspec/status.h"

namespace longspec::jinja {

// The value of a JSON text; objects keep their order.
Result<Value> ParseJson(Runtime& runtime, std::string_view text);

// The filter from_json(), which is json.loads().
Result<Value> FromJson(Runtime& runtime, const Value& self, const Arguments& arguments);

// The filter tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false).
Result<Value> ToJson(Runtime& runtime, const Value& self, const Arguments& arguments);

}  // namespace longspec::jinja
