// SPDX-License-Identifier: Apache-2.0
#include "server/body_coding.h"

#include <utility>

#include "base/ascii.h"
#include "gzip/inflate.h"

namespace longspec::server {

std::variant<std::string, api::Error> DecodedBody(std::string_view coding, std::string body,
                                                  size_t most_bytes) {
  const std::string name = LowerAscii(coding);
  if (name.empty() || name == "identity") return body;
  if (name != "gzip" && name != "x-gzip" && name != "deflate") {
    return api::Error{.status_code = 415,
                      .message = "Content-Encoding \"" + name.substr(0, 40) +
                                 "\" is not supported: it may be one of " + std::string(kBodyCodings)};
  }
  std::string decoded;
  // One byte more than may be tells a body of just so many bytes from a longer one.
  if (Inflate(std::move(body), most_bytes + 1, &decoded) && decoded.size() <= most_bytes) return decoded;
  if (decoded.size() > most_bytes) {
    return api::Error{
        .status_code = 413,
        .message = "the body has more than " + std::to_string(most_bytes) + " bytes when decoded",
        .code = "request_too_large"};
  }
  return api::Error{.message = "the body is not whole, or not " + name + " as its Content-Encoding says",
                    .code = "invalid_value"};
}

}  // namespace longspec::server
