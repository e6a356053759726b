// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace longspec {

// Of a part of an address (RFC 3986, 2.1): each % with two hexadecimal digits is the byte they name; any
// other % stands for itself.
std::string PercentDecoded(std::string_view text);

}  // namespace longspec
