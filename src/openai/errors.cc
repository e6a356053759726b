// SPDX-License-Identifier: Apache-2.0
#include "openai/errors.h"

#include <utility>

namespace longspec::openai {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson OrNull(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

ApiError ServerError(int status_code, const Status& status) {
  return {.status_code = status_code, .message = status.message(), .type = "server_error"};
}

}  // namespace

OrderedJson ErrorJson(const ApiError& error) {
  return {{"message", error.message},
          {"type", error.type},
          {"param", OrNull(error.param)},
          {"code", OrNull(error.code)}};
}

ApiError BadValueOf(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted)
    return {.message = status.message(), .code = "invalid_value"};
  return FailureOf(status);
}

ApiError RefusalOf(const Status& status) {
  ApiError error = BadValueOf(status);
  if (status.code() == StatusCode::kResourceExhausted) error.code = "context_length_exceeded";
  return error;
}

ApiError FailureOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return {.message = status.message(), .code = "invalid_value"};
    case StatusCode::kResourceExhausted:
    case StatusCode::kCancelled:  // by the server, which stops: whoever went away hears nothing
      return ServerError(503, status);
    default:
      return ServerError(500, status);
  }
}

ApiError Unavailable(std::string message) {
  return {.status_code = 503, .message = std::move(message), .type = "unavailable_error"};
}

}  // namespace longspec::openai
