// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/status_macros.h"
#include "jinja/builtins.h"
#include "jinja/json.h"
#include "jinja/ops.h"
#include "jinja/strings.h"

namespace longspec::jinja {
namespace {

// A filter without arguments that maps the text of any value to another text.
template <std::string (*map)(std::string_view)>
Result<Value> MapText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "this filter()").status());
  LS_ASSIGN(const std::string text, ToText(runtime, self));
  return runtime.String(map(text));
}

// Jinja's own title(): words begin after white space, hyphens and opening brackets.
std::string TitleWords(std::string_view text) {
  constexpr std::string_view kOpening = "-({[<";
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    const std::string_view character = text.substr(at, c.size);
    out += inside ? Lower(character) : Capitalize(character);
    inside = !IsSpace(c.value) && kOpening.find(character) == std::string_view::npos;
    at += c.size;
  }
  return out;
}

std::string Same(std::string_view text) { return std::string(text); }

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Result<Value> Trim(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "trim(chars)"));
  LS_ASSIGN(const std::string text, ToText(runtime, self));
  return StripText(runtime, text, p[0], Side::kBoth);
}

Result<Value> Replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "replace(old, new, count)", 2));
  LS_ASSIGN(const std::string text, ToText(runtime, self));
  LS_ASSIGN(const std::string old_text, p.Text(runtime, 0, ""));
  LS_ASSIGN(const std::string new_text, p.Text(runtime, 1, ""));
  int64_t count = -1;
  if (p[2] != nullptr && !p[2]->IsNone()) {
    LS_ASSIGN(count, p.Integer(2, -1));
  }
  return ReplaceText(runtime, text, old_text, new_text, count);
}

Result<Value> Indent(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "indent(width, first, blank)"));
  LS_ASSIGN(const std::string text, ToText(runtime, self));
  std::string indent;
  if (p[0] != nullptr && p[0]->IsString()) {
    indent = p[0]->text();
  } else {
    LS_ASSIGN(const int64_t width, p.Integer(0, 4));
    if (width > 0 && !runtime.CheckSize(static_cast<size_t>(width))) return runtime.status();
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (!runtime.ChargeBytes(indent.size())) return runtime.status();
  const bool blank = p.Flag(2, false);
  const std::string terminated =
      text + "\n";  // so that text that ends in a newline keeps its last, empty line
  LS_ASSIGN(const std::vector<std::string_view> lines, SplitLinesMetered(runtime, terminated));
  TextBuilder out(runtime);
  if (p.Flag(1, false)) out.Append(indent);
  for (size_t i = 0; i < lines.size() && runtime.ok(); ++i) {
    if (i > 0) out.Append("\n");
    if (i > 0 && (blank || !lines[i].empty())) out.Append(indent);
    out.Append(lines[i]);
  }
  return runtime.String(out.Take());
}

Result<Value> Center(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const Parameters p, Parameters::Bind(arguments, "center(width)"));
  LS_ASSIGN(const std::string text, ToText(runtime, self));
  LS_ASSIGN(const int64_t width, p.Integer(0, 80));
  const int64_t missing = width - static_cast<int64_t>(CountCodePoints(text));
  if (missing <= 0) return runtime.String(text);
  if (!runtime.CheckSize(static_cast<size_t>(missing))) return runtime.status();
  const size_t left = static_cast<size_t>(missing / 2 + (missing & width & 1));
  return runtime.String(std::string(left, ' ') + text +
                        std::string(static_cast<size_t>(missing) - left, ' '));
}

// The arguments of "%" are the filter's: a mapping if they are named.
Result<Value> Format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_ASSIGN(const std::string format, ToText(runtime, self));
  if (arguments.named.empty()) {
    return FormatPercent(runtime, format, runtime.NewList(arguments.positional, ListKind::kTuple));
  }
  if (!arguments.positional.empty()) {
    return InvalidArgument("format takes positional or named arguments, not both");
  }
  Dict* dict = runtime.NewDict();
  for (const auto& [name, value] : arguments.named) dict->Set(name, value);
  return FormatPercent(runtime, format, Value::Of(dict));
}

Result<Value> WordCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  LS_TRY(Parameters::Bind(arguments, "wordcount()").status());
  LS_ASSIGN(const std::string text, ToText(runtime, self));
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    const bool word = IsWordCharacter(c.value);
    if (word && !inside) ++words;
    inside = word;
    at += c.size;
  }
  return Value::Int(words);
}

constexpr std::array kTextFilters = {
    Builtin{"trim", Trim},
    Builtin{"upper", MapText<Upper>},
    Builtin{"lower", MapText<Lower>},
    Builtin{"capitalize", MapText<Capitalize>},
    Builtin{"title", MapText<TitleWords>},
    Builtin{"string", MapText<Same>},
    Builtin{"safe", MapText<Same>},  // nothing is escaped unless asked for
    Builtin{"escape", MapText<EscapeHtml>},
    Builtin{"e", MapText<EscapeHtml>},
    Builtin{"replace", Replace},
    Builtin{"indent", Indent},
    Builtin{"center", Center},
    Builtin{"format", Format},
    Builtin{"wordcount", WordCount},
    Builtin{"tojson", ToJson},
    Builtin{"from_json", FromJson},
};

}  // namespace

BuiltinTable TextFilters() { return {kTextFilters.data(), kTextFilters.size()}; }

}  // namespace longspec::jinja
