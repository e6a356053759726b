// SPDX-License-Identifier: Apache-2.0
//
// Which web pages may call the server. Browsers say from where a page came (its origin) and let pages send
// requests anywhere: a server that asks for no key would serve whatever page its user happens to visit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

namespace longspec::server {

class Origins {
 public:
  // Origins, "localhost" (all pages of this machine) or "*" (all pages), separated by commas. The error says
  // which is none.
  static Result<Origins> Parse(std::string_view list);

  // `origin`: of the page, as its browser says; empty: it is no page of another server that calls. `host`: as
  // which the server was called. `names_are_own`: whether every such name is its own. Where a server listens
  // for its machine alone it is not: anybody may have given it a name that pages are served under.
  bool MayCall(std::string_view origin, std::string_view host, bool names_are_own) const;

 private:
  std::vector<std::string> named_;
  bool any_ = false, local_ = false;
};

// Whether it names this machine: "localhost", "127.0.0.1:8080", "[::1]".
bool IsThisMachine(std::string_view host);

}  // namespace longspec::server
