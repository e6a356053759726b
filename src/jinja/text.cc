// SPDX-License-Identifier: Apache-2.0
//
// str() and repr().
#include <array>
#include <cstdio>

#include "base/status_macros.h"
#include "jinja/ast.h"
#include "jinja/characters.h"
#include "jinja/ops.h"

namespace longspec::jinja {
namespace {

using Type = Value::Type;

Status AppendRepr(Runtime& runtime, const Value& value, TextBuilder* out);

Status AppendItems(Runtime& runtime, const std::vector<Value>& items, TextBuilder* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ");
    LS_TRY(AppendRepr(runtime, items[i], out));
  }
  return {};
}

Status AppendListRepr(Runtime& runtime, const List& list, TextBuilder* out) {
  switch (list.kind) {
    case ListKind::kGenerator:
      out->Append("<generator>");
      return {};
    case ListKind::kTuple:
      out->Append("(");
      LS_TRY(AppendItems(runtime, list.items, out));
      out->Append(list.items.size() == 1 ? ",)" : ")");
      return {};
    case ListKind::kKeys:
      out->Append("dict_keys([");
      break;
    case ListKind::kValues:
      out->Append("dict_values([");
      break;
    case ListKind::kItems:
      out->Append("dict_items([");
      break;
    case ListKind::kList:
      out->Append("[");
      break;
  }
  LS_TRY(AppendItems(runtime, list.items, out));
  out->Append(list.kind == ListKind::kList ? "]" : "])");
  return {};
}

Status AppendDictRepr(Runtime& runtime, const Dict& dict, TextBuilder* out) {
  out->Append("{");
  const char* separator = "";
  for (const Dict::Entry& entry : dict.entries()) {
    out->Append(separator);
    separator = ", ";
    LS_TRY(AppendRepr(runtime, entry.key, out));
    out->Append(": ");
    LS_TRY(AppendRepr(runtime, entry.value, out));
  }
  out->Append("}");
  return {};
}

Status AppendNamespaceRepr(Runtime& runtime, const Namespace& ns, TextBuilder* out) {
  out->Append("<Namespace {");
  const char* separator = "";
  for (const auto& [name, value] : ns.attributes) {
    out->Append(separator);
    separator = ", ";
    out->Append(QuoteText(name) + ": ");
    LS_TRY(AppendRepr(runtime, value, out));
  }
  out->Append("}>");
  return {};
}

// repr() of a string is long only if the string is.
void AppendQuoted(Runtime& runtime, const std::string& text, TextBuilder* out) {
  if (runtime.ChargeBytes(2 * text.size()) && runtime.CheckSize(text.size())) out->Append(QuoteText(text));
}

Status AppendRepr(Runtime& runtime, const Value& value, TextBuilder* out) {
  const Runtime::Level level(runtime);
  if (!level || !runtime.Charge(1)) return runtime.status();
  switch (value.type()) {
    case Type::kUndefined:
      out->Append("Undefined");
      break;
    case Type::kNone:
      out->Append("None");
      break;
    case Type::kBool:
      out->Append(value.boolean() ? "True" : "False");
      break;
    case Type::kInt:
      out->Append(std::to_string(value.integer()));
      break;
    case Type::kBigInt:
      out->Append(value.digits());
      break;
    case Type::kFloat:
      out->Append(FormatFloat(value.number()));
      break;
    case Type::kString:
      AppendQuoted(runtime, value.text(), out);
      break;
    case Type::kList:
      LS_TRY(AppendListRepr(runtime, value.list(), out));
      break;
    case Type::kDict:
      LS_TRY(AppendDictRepr(runtime, value.dict(), out));
      break;
    case Type::kNamespace:
      LS_TRY(AppendNamespaceRepr(runtime, value.name_space(), out));
      break;
    case Type::kLoop:
      out->Append("<LoopContext " + std::to_string(value.loop().index0 + 1) + "/" +
                  std::to_string(value.loop().items.size()) + ">");
      break;
    case Type::kMacro:
      out->Append("<Macro " + QuoteText(value.macro().definition->name) + ">");
      break;
    case Type::kFunction:
      out->Append("<function " + std::string(value.function().name) + ">");
      break;
    case Type::kMethod:
      out->Append("<method " + std::string(value.method().method->name) + ">");
      break;
  }
  return runtime.status();
}

void AppendEscape(char32_t c, std::string* out) {
  std::array<char, 16> buffer{};
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(c));
  out->append(buffer.data());
}

}  // namespace

std::string QuoteText(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char32_t quote = single ? '\'' : '"';
  std::string out(1, static_cast<char>(quote));
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    at += c.size;
    if (c.value == quote || c.value == '\\') {
      out.push_back('\\');
      AppendCodePoint(c.value, &out);
    } else if (c.value == '\n') {
      out.append("\\n");
    } else if (c.value == '\r') {
      out.append("\\r");
    } else if (c.value == '\t') {
      out.append("\\t");
    } else if (IsPrintable(c.value)) {
      AppendCodePoint(c.value, &out);
    } else {
      AppendEscape(c.value, &out);
    }
  }
  out.push_back(static_cast<char>(quote));
  return out;
}

Status AppendText(Runtime& runtime, const Value& value, TextBuilder* out) {
  if (value.IsUndefined()) return {};
  if (!value.IsString()) return AppendRepr(runtime, value, out);
  out->Append(value.text());
  return runtime.status();
}

Result<std::string> ToText(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime);
  LS_TRY(AppendText(runtime, value, &out));
  return out.Take();
}

}  // namespace longspec::jinja
