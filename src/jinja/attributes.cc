// SPDX-License-Identifier: Apache-2.0
#include "jinja/attributes.h"

#include <algorithm>

#include "base/status_macros.h"
#include "jinja/ops.h"
#include "jinja/utf8.h"

namespace longspec::jinja {

Result<std::vector<Value>> AttributePath(Runtime& runtime, const Value& attribute) {
  std::vector<Value> path;
  if (attribute.IsNone()) return path;
  if (!attribute.IsString()) {
    path.push_back(attribute);
    return path;
  }
  if (!runtime.ChargeBytes(attribute.text().size())) return runtime.status();
  std::string_view rest = attribute.text();
  while (true) {
    if (!runtime.Charge(4)) return runtime.status();  // a step takes about as much memory as 4 list elements
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view step = rest.substr(0, dot);
    const bool digits = !step.empty() && step.find_first_not_of("0123456789") == std::string_view::npos;
    const std::optional<int64_t> index = digits ? ParseInteger(step, 10) : std::nullopt;
    path.push_back(index.has_value() ? Value::Int(*index) : Value::Literal(std::string(step)));
    if (dot == rest.size()) return path;
    rest.remove_prefix(dot + 1);
  }
}

Result<Value> FollowPath(Runtime& runtime, const Value& object, const std::vector<Value>& path,
                         const Value* otherwise) {
  Value value = object;
  for (const Value& step : path) {
    if (!runtime.Charge(1)) return runtime.status();
    LS_ASSIGN(value, GetItem(runtime, value, step));
    if (value.IsUndefined() && otherwise != nullptr && !otherwise->IsNone()) value = *otherwise;
  }
  return value;
}

Value FoldCase(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.IsString()) return value;
  return runtime.String(Lower(value.text()));
}

}  // namespace longspec::jinja
