// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>

namespace longspec::http {

// "Sun, 06 Nov 1994 08:49:37 GMT", whatever the locale.
std::string HttpDate(std::time_t time);

}  // namespace longspec::http
