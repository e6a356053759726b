// SPDX-License-Identifier: Apache-2.0
//
// Bodies of requests that were sent compressed. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "api/errors.h"

namespace longspec::server {

// What Content-Encoding may say besides nothing, as Accept-Encoding lists it.
inline constexpr std::string_view kBodyCodings = "gzip, deflate, identity";

// The body as it was before it was coded. 415: the coding is none of these; 413: it has more than most_bytes,
// of which no more than that is ever made; 400: it is not whole, or not of this coding.
std::variant<std::string, api::Error> DecodedBody(std::string_view coding, std::string body,
                                                  size_t most_bytes);

}  // namespace longspec::server
