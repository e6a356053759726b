// SPDX-License-Identifier: Apache-2.0
#include "server/exchange.h"

#include <algorithm>

namespace longspec::server {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return Lower(x) == Lower(y); });
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  const auto found = std::ranges::find_if(headers, [&](const auto& h) { return SameName(h.first, name); });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string HttpRequest::QueryValue(std::string_view name) const {
  for (size_t begin = 0; begin <= query.size();) {
    const size_t end = std::min(query.find('&', begin), query.size());
    const std::string_view field = std::string_view(query).substr(begin, end - begin);
    const size_t equals = std::min(field.find('='), field.size());
    if (field.substr(0, equals) == name) return std::string(field.substr(std::min(equals + 1, field.size())));
    begin = end + 1;
  }
  return {};
}

std::string_view StatusText(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

}  // namespace longspec::server
