// SPDX-License-Identifier: Apache-2.0
#include "http/request_head.h"

#include <algorithm>
#include <initializer_list>

#include "base/ascii.h"

namespace longspec::http {
namespace {

using server::HttpRequest;

bool IsNamed(const std::pair<std::string, std::string>& header, std::string_view name) {
  return LowerAscii(header.first) == name;
}

size_t CountOf(const HttpRequest& request, std::string_view name) {
  return static_cast<size_t>(
      std::ranges::count_if(request.headers, [&](const auto& header) { return IsNamed(header, name); }));
}

// "http://host:80/path?query" -> "host:80", and "/path?query" is left; of a path nothing is taken.
std::optional<std::string> TakeHost(std::string_view* target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (LowerAscii(target->substr(0, scheme.size())) != scheme) continue;
    const std::string_view rest = target->substr(scheme.size());
    const size_t end = std::min(rest.find_first_of("/?"), rest.size());
    *target = rest.substr(end);
    return std::string(rest.substr(0, end));
  }
  return std::nullopt;
}

void SetHost(std::string host, HttpRequest* request) {
  std::erase_if(request->headers, [](const auto& header) { return IsNamed(header, "host"); });
  request->headers.emplace_back("Host", std::move(host));
}

}  // namespace

std::optional<HeadFault> ReadHead(std::string_view target, bool is_http_1_1, HttpRequest* request) {
  // Whoever takes a body for shorter than it is reads the rest of it as the next request.
  if (CountOf(*request, "transfer-encoding") > 0) {
    if (!is_http_1_1) return HeadFault{.message = "HTTP/1.0 has no Transfer-Encoding"};
    if (LowerAscii(request->Header("transfer-encoding")) != "chunked")
      return HeadFault{.status = 501, .message = "Transfer-Encoding may be chunked and nothing else"};
  }
  const size_t n_hosts = CountOf(*request, "host");
  if (n_hosts > 1) return HeadFault{.message = "a request has one Host"};
  if (n_hosts == 0 && is_http_1_1) return HeadFault{.message = "a request of HTTP/1.1 has a Host"};
  std::string path_and_query(target);
  if (auto host = TakeHost(&target)) {
    if (host->empty()) return HeadFault{.message = "the target of the request names no host"};
    SetHost(*std::move(host), request);
    path_and_query = (target.starts_with('/') ? "" : "/") + std::string(target);
  }
  const bool is_of_server = path_and_query == "*" && request->method == "OPTIONS";
  if (!path_and_query.starts_with('/') && !is_of_server)
    return HeadFault{.message = "the target of a request is a path, such as /health, or an http URL"};
  const size_t question = std::min(path_and_query.find('?'), path_and_query.size());
  request->path = path_and_query.substr(0, question);
  request->query = path_and_query.substr(std::min(question + 1, path_and_query.size()));
  return std::nullopt;
}

}  // namespace longspec::http
