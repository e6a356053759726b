// SPDX-License-Identifier: Apache-2.0
#include "wire/errors.h"

#include <utility>

namespace longspec::wire {
namespace {

using Json = nlohmann::ordered_json;

// llama.cpp's names.
std::string TypeOf(const openai::ApiError& error) {
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
std::string MessageOf(const openai::ApiError& error) {
  return (error.code == "context_length_exceeded" ? "prompt is too long: " : "") + error.message;
}

}  // namespace

Json ErrorBody(const openai::ApiError& error, const Json& more) {
  Json body = {{"code", error.status_code}, {"message", MessageOf(error)}, {"type", TypeOf(error)}};
  body["param"] = error.param.empty() ? Json(nullptr) : Json(error.param);
  for (const auto& [name, value] : more.items()) body[name] = value;
  return {{"error", std::move(body)}};
}

}  // namespace longspec::wire
