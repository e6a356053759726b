// SPDX-License-Identifier: Apache-2.0
//
// The server's page (page/), which is part of the program.
#pragma once

#include <string_view>

namespace longspec::server {

std::string_view Page();

// What a browser may do with it: load nothing from elsewhere, and be shown in no other page.
inline constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace longspec::server
