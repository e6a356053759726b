// SPDX-License-Identifier: Apache-2.0
//
// The lines of OpenAI's batch files. In:
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
// Out, in any order:
//   {"id": "batch_req_...", "custom_id": "a", "response": {"status_code": 200, "request_id": "...", "body":
//   {...}},
//    "error": null}
// A request that failed has its error twice, so that readers of either find it: as {"error": {...}} in the
// body of a response whose status_code is not 200, and as the line's own error with the line's number in the
// file of requests. A line without a custom_id has no response and custom_id null. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "api/errors.h"
#include "api/request.h"

namespace longspec::api {

inline constexpr size_t kMaxCustomIdBytes = 4096;

struct BatchLine {
  std::string custom_id;  // empty if the line has none that can be used
  std::variant<Request, Error> request;
};

BatchLine ParseBatchLine(std::string_view line, const RequestDefaults& defaults);

// `id` is the id of a response without its beginning ("batch_req_").
nlohmann::ordered_json BatchAnswerJson(const std::string& id, const std::string& custom_id,
                                       nlohmann::ordered_json body);
nlohmann::ordered_json BatchErrorJson(const std::string& id, const std::string& custom_id,
                                      int64_t line_number, const Error& error);

// What a line of answers is about: a custom_id, or without one a line of the requests, counted from 1.
struct AnsweredRequest {
  std::string custom_id;
  int64_t line_number = 0;
};
// Nothing if it is no such line.
std::optional<AnsweredRequest> ParseAnswerLine(std::string_view line);

// Whether these bytes may be the beginning of a line of answers that was torn off.
bool MayBeginAnswerLine(std::string_view bytes);

}  // namespace longspec::api
