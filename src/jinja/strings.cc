// SPDX-License-Identifier: Apache-2.0
#include "jinja/strings.h"

#include <algorithm>

#include "base/status_macros.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

// Finds the value of one replacement field: an index, a name, or nothing for the next argument.
Result<Value> FormatField(std::string_view field, const Arguments& arguments, size_t* next) {
  if (field.find_first_of("!:.[") != std::string_view::npos) {
    return Unsupported("format() offers {}, {0} and {name} only, not {" + std::string(field) + "}");
  }
  const bool automatic = field.empty();
  const std::optional<int64_t> index = automatic ? static_cast<int64_t>((*next)++) : ParseInteger(field, 10);
  if (index.has_value()) {
    const size_t at = static_cast<size_t>(*index);
    if (at < arguments.positional.size()) return arguments.positional[at];
    return InvalidArgument("format() has no argument for the field {" + std::string(field) + "}");
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == field) return value;
  }
  return InvalidArgument("format() has no argument '" + std::string(field) + "'");
}

}  // namespace

Result<Value> StripText(Runtime& runtime, std::string_view text, const Value* characters, Side side) {
  if (characters == nullptr || characters->IsNone()) {
    if (!runtime.ChargeBytes(text.size())) return runtime.status();
    return runtime.String(std::string(StripSpace(text, side)));
  }
  if (!characters->IsString()) {
    return InvalidArgument("strip arg must be None or str, not " + std::string(characters->TypeName()));
  }
  const std::string& set = characters->text();
  // Each character of the text is looked for in all of the set.
  if (!runtime.ChargeProduct(text.size(), set.size())) return runtime.status();
  return runtime.String(std::string(StripCharacters(text, set, side)));
}

Result<Value> ReplaceText(Runtime& runtime, std::string_view text, std::string_view old_text,
                          std::string_view new_text, int64_t count) {
  if (!runtime.ChargeBytes(text.size())) return runtime.status();
  TextBuilder out(runtime);
  size_t done = 0;
  size_t from = 0;  // where to look next
  for (; count != 0 && runtime.ok(); --count) {
    const size_t at = FindText(text, old_text, from);
    if (at == std::string_view::npos) break;
    out.Append(text.substr(done, at - done));
    out.Append(new_text);
    done = at + old_text.size();
    from = done;
    if (!old_text.empty()) continue;
    if (at == text.size()) break;
    from = at + DecodeAt(text, at).size;  // between all characters
  }
  out.Append(text.substr(done));
  if (!runtime.ok()) return runtime.status();
  return runtime.String(out.Take());
}

Result<Value> JoinText(Runtime& runtime, std::string_view separator, const std::vector<Value>& items) {
  TextBuilder out(runtime);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    LS_TRY(AppendText(runtime, items[i], &out));
    if (!runtime.ok()) return runtime.status();
  }
  return runtime.String(out.Take());
}

Result<std::vector<std::string_view>> SplitLinesMetered(Runtime& runtime, std::string_view text) {
  if (!runtime.Charge(text.size() / 2)) return runtime.status();
  return SplitLines(text);
}

Result<Value> FormatBraces(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  if (!runtime.ChargeBytes(format.size())) return runtime.status();
  TextBuilder out(runtime);
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", at), format.size());
    out.Append(format.substr(at, brace - at));
    if (brace == format.size()) break;
    at = brace + 1;
    if (at < format.size() && format[at] == format[brace]) {
      out.Append(format.substr(at++, 1));
      continue;
    }
    const size_t close = format[brace] == '{' ? format.find('}', at) : std::string_view::npos;
    if (close == std::string_view::npos) return InvalidArgument("single '{' or '}' in the text of format()");
    LS_ASSIGN(const Value value, FormatField(format.substr(at, close - at), arguments, &next));
    LS_TRY(AppendText(runtime, value, &out));
    at = close + 1;
  }
  if (!runtime.ok()) return runtime.status();
  return runtime.String(out.Take());
}

}  // namespace longspec::jinja
