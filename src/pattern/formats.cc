// SPDX-License-Identifier: Apache-2.0
#include "pattern/formats.h"

#include <map>

namespace longspec {
namespace {

std::string Repeated(const std::string& part, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += part;
  return all;
}

// --- RFC 3339. Years from 1 on, as Python's dates have them. ---

std::string Date() {
  const std::string year = "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})";
  const std::string fours = "(?:0[48]|[2468][048]|[13579][26])";
  const std::string leap_year = "(?:\\d\\d" + fours + "|" + fours + "00)";
  return "(?:" + year +
         "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
         "02-(?:0[1-9]|1\\d|2[0-8]))|" +
         leap_year + "-02-29)";
}
std::string Time() {
  const std::string hour_minute = "(?:[01]\\d|2[0-3]):[0-5]\\d";
  return hour_minute + ":[0-5]\\d(?:\\.\\d+)?(?:Z|[+-]" + hour_minute + ")";
}
std::string Duration() {
  const std::string second = "\\d+S", minute = "\\d+M(?:" + second + ")?", hour = "\\d+H(?:" + minute + ")?",
                    day = "\\d+D", month = "\\d+M(?:" + day + ")?", year = "\\d+Y(?:" + month + ")?",
                    time = "T(?:" + hour + "|" + minute + "|" + second + ")";
  return "P(?:(?:" + day + "|" + month + "|" + year + ")(?:" + time + ")?|" + time + "|\\d+W)";
}

// --- Addresses. ---

std::string Ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return byte + Repeated("\\." + byte, 3);
}

// RFC 3986, IPv6address: eight groups, the last two of which may be an IPv4 address; :: stands for one or
// more.
std::string Ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}", last = "(?:" + group + ":" + group + "|" + Ipv4() + ")";
  std::string all = Repeated(group + ":", 6) + last;
  for (int before = 0; before <= 7; ++before) {
    // Up to `before` groups, then ::, then exactly what is left but one.
    const std::string head =
        before == 0 ? "" : "(?:(?:" + group + ":){0," + std::to_string(before - 1) + "}" + group + ")?";
    const int after = 7 - before;
    const std::string tail = after >= 2 ? Repeated(group + ":", after - 2) + last : after == 1 ? group : "";
    all += "|" + head + "::" + tail;
  }
  return "(?:" + all + ")";
}

// RFC 1123; a name of 253 characters at most.
std::string Hostname(const std::string& inner, const std::string& outer) {
  const std::string label = outer + "(?:" + inner + "{0,61}" + outer + ")?";
  return label + "(?:\\." + label + ")*";
}

std::string Email() {
  const std::string atext = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]", alnum = "[A-Za-z0-9]";
  const std::string label = alnum + "(?:[A-Za-z0-9-]*" + alnum + ")?";
  return atext + "+(?:\\." + atext + "+)*@" + label + "(?:\\." + label + ")*";
}

// --- RFC 3986. ---

struct Uri {
  const std::string percent = "%[0-9A-Fa-f]{2}";
  const std::string unreserved = "A-Za-z0-9._~-", sub_delims = "!$&'()*+,;=";
  static std::string Of(const std::string& set, const std::string& or_else) {
    return "(?:[" + set + "]|" + or_else + ")";
  }
  const std::string pchar = Of(sub_delims + ":@" + unreserved, percent);
  const std::string no_colon = Of(sub_delims + "@" + unreserved, percent);
  const std::string rest = "(?:\\?" + Of(sub_delims + ":@/?" + unreserved, percent) + "*)?(?:#" +
                           Of(sub_delims + ":@/?" + unreserved, percent) + "*)?";
  const std::string absolute_or_empty = "(?:/" + pchar + "*)*";
  const std::string authority = "(?:" + Of(sub_delims + ":" + unreserved, percent) + "*@)?" +
                                Of(sub_delims + unreserved, percent) + "*(?::\\d*)?";
  const std::string absolute = "/(?:" + pchar + "+" + absolute_or_empty + ")?";
  const std::string with_authority = "//" + authority + absolute_or_empty;

  std::string Whole() const {
    return "[A-Za-z][A-Za-z0-9+.-]*:(?:" + with_authority + "|" + absolute + "|" + pchar + "+" +
           absolute_or_empty + ")?" + rest;
  }
  std::string Relative() const {
    return "(?:" + with_authority + "|" + absolute + "|" + no_colon + "+" + absolute_or_empty + ")?" + rest;
  }
};

// RFC 6570.
std::string UriTemplate() {
  const std::string percent = "%[0-9A-Fa-f]{2}";
  const std::string literal = "(?:[!#$&(-;=?-\\[\\]_a-z~]|" + percent + ")";
  const std::string character = "(?:[A-Za-z0-9_]|" + percent + ")";
  const std::string name = "[A-Za-z0-9_](?:\\.?" + character + ")*";
  const std::string variable = name + "(?::[1-9]\\d{0,2}|\\*)?";
  return "(?:" + literal + "|\\{[+#./;?&]?" + variable + "(?:," + variable + ")*\\})*";
}

// RFC 6901.
std::string JsonPointer() { return "(?:/(?:[^/~]|~[01])*)*"; }

std::map<std::string, StringFormat, std::less<>> AllFormats() {
  constexpr int64_t kMostName = 253, kMostEmail = 254;
  const Uri uri;
  const std::string either = "(?:" + uri.Whole() + "|" + uri.Relative() + ")";
  std::map<std::string, StringFormat, std::less<>> all;
  all["date"] = {Date()};
  all["time"] = {Time()};
  all["date-time"] = {Date() + "T" + Time()};
  all["duration"] = {Duration()};
  all["ipv4"] = {Ipv4()};
  all["ipv6"] = {Ipv6()};
  all["uuid"] = {"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"};
  all["hostname"] = {Hostname("[A-Za-z0-9-]", "[A-Za-z0-9]"), kMostName};
  all["email"] = {Email(), kMostEmail};
  all["uri"] = {uri.Whole()};
  all["uri-reference"] = {either};
  all["uri-template"] = {UriTemplate()};
  all["json-pointer"] = {JsonPointer()};
  all["relative-json-pointer"] = {"(?:0|[1-9]+0?)(?:#|" + JsonPointer() + ")"};
  // Of the international ones, those that need no more than ASCII.
  all["idn-email"] = all["email"];
  all["idn-hostname"] = {Hostname("[a-z0-9]", "[a-z0-9]"), kMostName};
  all["iri"] = all["uri"];
  all["iri-reference"] = all["uri-reference"];
  return all;
}

}  // namespace

std::optional<StringFormat> KnownFormat(std::string_view name) {
  static const auto kFormats = AllFormats();
  const auto at = kFormats.find(name);
  if (at == kFormats.end()) return std::nullopt;
  return at->second;
}

bool IsUnsupportedFormat(std::string_view name) { return name == "regex"; }

}  // namespace longspec
