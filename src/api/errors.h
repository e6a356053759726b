// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a request, and how an error looks on the wire.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "longspec/status.h"

namespace longspec::api {

struct Error {
  int status_code = 400;  // of HTTP
  std::string message;    // one line
  std::string type = "invalid_request_error";
  std::string param = {};  // the field, such as "messages[0].content"; empty: none
  std::string code = {};   // "invalid_value"; empty: none
};

// {"message", "type", "param", "code"}; null for what is empty.
nlohmann::ordered_json ErrorJson(const Error& error);

// A value that was read before anything was computed. kResourceExhausted: it has more of something than it
// may.
Error BadValueOf(const Status& status);
// A request whose prompt was measured and refused. kResourceExhausted: it can never fit.
Error RefusalOf(const Status& status);
// A generation that failed on the way.
Error FailureOf(const Status& status);
// What cannot be done now, and may be later.
Error Unavailable(std::string message);

using ErrorForm = nlohmann::ordered_json (*)(const Error&, const nlohmann::ordered_json& more);

// {"error": {"code": 400, "message", "type", "param"}} and `more` beside them: llama.cpp's form, whose names
// OpenAI's clients read, too.
nlohmann::ordered_json ErrorBody(const Error& error, const nlohmann::ordered_json& more = {});

}  // namespace longspec::api
