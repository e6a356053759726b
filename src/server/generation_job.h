// SPDX-License-Identifier: Apache-2.0
//
// A request for text on its way: given to the engine's loop, followed, and sent on in its form. A client that
// goes away cancels it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/answer_form.h"
#include "api/request.h"
#include "longspec/engine.h"
#include "server/call.h"
#include "server/engine_loop.h"
#include "server/metrics.h"
#include "server/predictions.h"
#include "server/slots.h"

namespace longspec::server {

// Borrowed; outlives the jobs.
struct JobParts {
  const Engine* engine = nullptr;
  EngineLoop* loop = nullptr;
  Metrics* metrics = nullptr;
  SlotTable* slots = nullptr;
  Suggestions* suggestions = nullptr;
  int ping_seconds = 30;
};

// What is wished for: each of the prompts gets as many answers as the request wants.
struct GenerationWish {
  std::shared_ptr<const api::Request> request;
  std::vector<std::vector<int32_t>> prompts;    // in tokens; at least one
  std::shared_ptr<const Grammar> grammar = {};  // the request's, compiled; null: it has none
};
// Answers the call, now or later.
void StartGenerationJob(const JobParts& parts, GenerationWish wish, std::unique_ptr<api::AnswerForm> form,
                        std::shared_ptr<Call> call);

}  // namespace longspec::server
