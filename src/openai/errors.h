// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a request, as OpenAI's API says it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "longspec/status.h"

namespace longspec::openai {

struct ApiError {
  int status_code = 400;  // of HTTP
  std::string message;    // one line
  std::string type = "invalid_request_error";
  std::string param = {};  // the field, such as "messages[0].content"; empty: none
  std::string code = {};   // "invalid_value"; empty: none
};

// {"message", "type", "param", "code"}; null for what is empty.
nlohmann::ordered_json ErrorJson(const ApiError& error);

// A value that was read before anything was computed. kResourceExhausted: it has more of something than it
// may.
ApiError BadValueOf(const Status& status);
// A request whose prompt was measured and refused. kResourceExhausted: it can never fit.
ApiError RefusalOf(const Status& status);
// A generation that failed on the way.
ApiError FailureOf(const Status& status);
// What cannot be done now, and may be later.
ApiError Unavailable(std::string message);

}  // namespace longspec::openai
