// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp's own completions: /completion, and /infill, which writes into a hole.
#pragma once

#include <memory>

#include "api/answer_form.h"

namespace longspec::api {

std::variant<Request, Error> ParseLlamaRequest(const nlohmann::ordered_json& body,
                                               const RequestDefaults& defaults);
std::variant<Request, Error> ParseInfillRequest(const nlohmann::ordered_json& body,
                                                const RequestDefaults& defaults);

std::unique_ptr<AnswerForm> MakeLlamaForm(FormParts parts);

// What a request asked for, in llama.cpp's names.
nlohmann::ordered_json GenerationSettingsJson(const GenerationRequest& request, int n_ctx);
// The same without what is anybody's own, for others to see: stop strings, biases.
nlohmann::ordered_json PublicSettingsJson(const GenerationRequest& request, int n_ctx);

}  // namespace longspec::api
