// SPDX-License-Identifier: Apache-2.0
#include "server/keys.h"

#include <algorithm>
#include <string_view>

#include "base/ascii.h"

namespace longspec::server {
namespace {

// Takes as long for any two texts of a length.
bool SameSecret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |=
        static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]);
  return difference == 0;
}

// "Bearer KEY" -> "KEY"; the scheme in any case. Empty: it is another.
std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (LowerAscii(authorization.substr(0, kScheme.size())) != kScheme) return {};
  authorization.remove_prefix(kScheme.size());
  return authorization.substr(std::min(authorization.find_first_not_of(' '), authorization.size()));
}

}  // namespace

bool HasKey(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  bool found = false;
  // Some clients show one in each.
  for (const std::string_view given :
       {BearerToken(request.Header("authorization")), request.Header("x-api-key")}) {
    for (const std::string& key : keys) found |= SameSecret(given, key);
  }
  return found;
}

}  // namespace longspec::server
