// SPDX-License-Identifier: Apache-2.0
//
// What the head of a request says beyond its syntax: the form of its target, whom it is for, how its body is
// framed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/exchange.h"

namespace longspec::http {

struct HeadFault {
  int status = 400;
  std::string message;
};

// Fills in the path and the query from the target of a request whose headers are there. The host of a target
// that names one ("http://host/path", as it is sent to proxies) takes the place of the header Host. What
// comes back is why the request cannot be answered; then its connection cannot be read on.
std::optional<HeadFault> ReadHead(std::string_view target, bool is_http_1_1, server::HttpRequest* request);

}  // namespace longspec::http
