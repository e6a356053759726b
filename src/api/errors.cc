// SPDX-License-Identifier: Apache-2.0
#include "api/errors.h"

#include <utility>

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Error ServerError(int status_code, const Status& status) {
  return {.status_code = status_code, .message = status.message(), .type = "server_error"};
}

// llama.cpp's names.
std::string TypeOf(const Error& error) {
  if (error.code == "context_length_exceeded") return "exceed_context_size_error";
  switch (error.status_code) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return error.type;
  }
}

// By these words agents and libraries know that a conversation has to be cut.
std::string MessageOf(const Error& error) {
  return (error.code == "context_length_exceeded" ? "prompt is too long: " : "") + error.message;
}

}  // namespace

Json ErrorJson(const Error& error) {
  return {{"message", error.message},
          {"type", error.type},
          {"param", OrNull(error.param)},
          {"code", OrNull(error.code)}};
}

Error BadValueOf(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted)
    return {.message = status.message(), .code = "invalid_value"};
  return FailureOf(status);
}

Error RefusalOf(const Status& status) {
  Error error = BadValueOf(status);
  if (status.code() == StatusCode::kResourceExhausted) error.code = "context_length_exceeded";
  return error;
}

Error FailureOf(const Status& status) {
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

Error Unavailable(std::string message) {
  return {.status_code = 503, .message = std::move(message), .type = "unavailable_error"};
}

Json ErrorBody(const Error& error, const Json& more) {
  Json body = {{"code", error.status_code}, {"message", MessageOf(error)}, {"type", TypeOf(error)}};
  body["param"] = error.param.empty() ? Json(nullptr) : Json(error.param);
  for (const auto& [name, value] : more.items()) body[name] = value;
  return {{"error", std::move(body)}};
}

}  // namespace longspec::api
