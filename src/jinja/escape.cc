// SPDX-License-Identifier: Apache-2.0
#include "jinja/escape.h"

#include <charconv>

#include "base/status_macros.h"
#include "jinja/utf8.h"

namespace longspec::jinja {
namespace {

constexpr std::string_view kNames = "\\'\"abfnrtv";
constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";

// \xhh, \uhhhh and \Uhhhhhhhh: exactly `digits` digits.
Status AppendHex(std::string_view literal, size_t digits, size_t* at, std::string* out) {
  const std::string_view hex = literal.substr(*at, digits);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  const bool complete = hex.size() == digits && error == std::errc() && end == hex.data() + hex.size();
  if (!complete || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return InvalidArgument("the string has a \\x, \\u or \\U escape that names no character");
  }
  AppendCodePoint(value, out);
  *at += digits;
  return {};
}

void AppendOctal(std::string_view literal, size_t* at, std::string* out) {
  uint32_t value = 0;
  for (int digits = 0; digits < 3 && *at < literal.size() && literal[*at] >= '0' && literal[*at] <= '7';
       ++digits) {
    value = value * 8 + static_cast<uint32_t>(literal[(*at)++] - '0');
  }
  AppendCodePoint(value, out);
}

}  // namespace

Status Unescape(std::string_view literal, std::string* out) {
  for (size_t at = 0; at < literal.size();) {
    const char c = literal[at++];
    if (c != '\\' || at == literal.size()) {
      out->push_back(c);
      continue;
    }
    const char escaped = literal[at++];
    const size_t name = kNames.find(escaped);
    if (name != std::string_view::npos) {
      out->push_back(kMeanings[name]);
    } else if (escaped == 'x' || escaped == 'u' || escaped == 'U') {
      LS_TRY(AppendHex(literal, escaped == 'x' ? 2 : escaped == 'u' ? 4 : 8, &at, out));
    } else if (escaped >= '0' && escaped <= '7') {
      --at;
      AppendOctal(literal, &at, out);
    } else if (escaped == 'N') {
      return Unsupported("named characters (\\N{...}) are not offered in strings");
    } else if (escaped != '\n') {  // a backslash before a newline joins the lines
      out->push_back('\\');
      out->push_back(escaped);
    }
  }
  return {};
}

}  // namespace longspec::jinja
