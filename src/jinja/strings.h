// SPDX-License-Identifier: Apache-2.0
//
// Operations on text that a filter and a method share. Within the runtime's limits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "jinja/characters.h"
#include "jinja/runtime.h"
#include "longspec/status.h"

namespace longspec::jinja {

// str.strip(characters), with white space where there are none or None.
Result<Value> StripText(Runtime& runtime, std::string_view text, const Value* characters, Side side);
// str.replace(old, new, count); a negative count means all.
Result<Value> ReplaceText(Runtime& runtime, std::string_view text, std::string_view old_text,
                          std::string_view new_text, int64_t count);
// separator.join(items), where the items may be of any type.
Result<Value> JoinText(Runtime& runtime, std::string_view separator, const std::vector<Value>& items);
Result<std::vector<std::string_view>> SplitLinesMetered(Runtime& runtime, std::string_view text);
// "{} {0} {name}".format(...); format specifications are not offered.
Result<Value> FormatBraces(Runtime& runtime, std::string_view format, const Arguments& arguments);

}  // namespace longspec::jinja
