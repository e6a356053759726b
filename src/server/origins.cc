// SPDX-License-Identifier: Apache-2.0
#include "server/origins.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"

namespace longspec::server {
namespace {

// Of programs of this machine that show pages of their own; no web page has such an origin.
constexpr std::string_view kProgramSchemes[] = {"app", "file", "tauri", "vscode-file", "vscode-webview"};

// "http://a.example:8080" -> "http", "a.example:8080". Without a scheme all of it is the host.
std::pair<std::string, std::string> SchemeAndHost(std::string_view origin) {
  const size_t colon = origin.find("://");
  if (colon == std::string_view::npos) return {"", LowerAscii(origin)};
  return {LowerAscii(origin.substr(0, colon)), LowerAscii(origin.substr(colon + 3))};
}

// "a.example:8080" -> "a.example", "[::1]:8080" -> "[::1]"
std::string_view WithoutPort(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool in_brackets = host.starts_with('[') && host.rfind(']') > colon;
  return colon == std::string_view::npos || in_brackets ? host : host.substr(0, colon);
}

bool IsAddress(std::string_view name) {
  return name.starts_with('[') ||
         name.find_first_not_of("0123456789.") == std::string_view::npos;  // no name of a host is so
}

}  // namespace

bool IsThisMachine(std::string_view host) {
  const std::string lower = LowerAscii(host);
  if (lower == "::1") return true;
  const std::string_view name = WithoutPort(lower);
  return name == "localhost" || name.ends_with(".localhost") || name == "[::1]" ||
         (name.starts_with("127.") && IsAddress(name));
}

Result<Origins> Origins::Parse(std::string_view list) {
  Origins origins;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string_view one = list.substr(begin, end - begin);
    begin = end + 1;
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    const std::string_view given = one;
    if (one.ends_with('/')) one.remove_suffix(1);  // as a browser's address line shows it
    if (one.empty()) continue;
    if (one == "*") {
      origins.any_ = true;
    } else if (LowerAscii(one) == "localhost") {
      origins.local_ = true;
    } else if (const auto [scheme, host] = SchemeAndHost(one);
               one == "null" || (!scheme.empty() && !host.empty() && host.find('/') == std::string::npos)) {
      origins.named_.push_back(LowerAscii(one));
    } else {
      return InvalidArgument("--cors-origins: \"" + std::string(given) +
                             "\" is no origin: one is such as https://chat.example or http://10.0.0.2:3000, "
                             "and localhost stands for the pages of this machine, * for all");
    }
  }
  return origins;
}

bool Origins::MayCall(std::string_view origin, std::string_view host, bool names_are_own) const {
  if (origin.empty() || any_) return true;
  if (std::ranges::find(named_, LowerAscii(origin)) != named_.end()) return true;
  const auto [scheme, from] = SchemeAndHost(origin);
  if (local_ &&
      (IsThisMachine(from) || std::ranges::find(kProgramSchemes, scheme) != std::end(kProgramSchemes)))
    return true;
  const std::string_view name = WithoutPort(from);
  return from == LowerAscii(host) && (names_are_own || IsAddress(name) || IsThisMachine(name));
}

}  // namespace longspec::server
