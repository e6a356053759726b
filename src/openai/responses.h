// SPDX-License-Identifier: Apache-2.0
//
// Answers in the form of OpenAI's API, with llama.cpp's `timings`. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "longspec/generation.h"
#include "openai/requests.h"

namespace longspec::openai {

struct ResponseHead {
  std::string id;       // without its beginning, which says what the response is: "chatcmpl-"
  int64_t created = 0;  // seconds since 1970
  std::string model;    // the one that answered
};

// {"id", "object", "created", "model", "choices": [...], "usage", "seed", "timings"}. Choice i is answers[i];
// all have one prompt, which usage counts once. `timings` only of a single answer: several share theirs.
// REQUIRES: !answers.empty()
nlohmann::ordered_json ResponseJson(Endpoint endpoint, const ResponseHead& head,
                                    std::span<const GenerationResult> answers);

nlohmann::ordered_json TimingsJson(const Timings& timings);

}  // namespace longspec::openai
