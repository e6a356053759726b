// SPDX-License-Identifier: Apache-2.0
//
// A loaded engine and everything that serves it; what handlers of routes see. Each handler reads its request
// and answers the call, now or later.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/answer_form.h"
#include "api/errors.h"
#include "api/request.h"
#include "chat/answer_reader.h"
#include "chat/dialect.h"
#include "longspec/engine.h"
#include "server/app.h"
#include "server/call.h"
#include "server/engine_loop.h"
#include "server/file_names.h"
#include "server/generation_job.h"
#include "server/predictions.h"
#include "server/slots.h"
#include "server/workers.h"

namespace longspec::server {

// Declared in the order in which they are needed: the loop's thread uses what stands before it.
struct Served {
  const AppOptions& options;
  Metrics& metrics;
  std::vector<std::string> model_names;  // never empty
  FileNames files;
  int64_t created = 0;    // seconds since 1970
  chat::Dialect dialect;  // as the model's chat template has it
  std::unique_ptr<Engine> engine;
  std::unique_ptr<SlotTable> slots;
  std::unique_ptr<Suggestions> suggestions = std::make_unique<Suggestions>();
  // Whoever writes a session, which holds its memory meanwhile, has a copy.
  std::shared_ptr<const int> saving = std::make_shared<const int>(0);
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<Workers> workers;

  JobParts job_parts() const {
    return {.engine = engine.get(),
            .loop = loop.get(),
            .metrics = &metrics,
            .slots = slots.get(),
            .suggestions = suggestions.get(),
            .ping_seconds = options.ping_seconds};
  }
};

using CallPtr = std::shared_ptr<Call>;

// Quick ones, for the thread that serves connections.
void GetVersion(Served& served, CallPtr call);
void GetModels(Served& served, CallPtr call);
void GetProps(Served& served, CallPtr call);
void GetSlots(Served& served, CallPtr call);
void GetMetrics(Served& served, CallPtr call);
void GetOllamaVersion(Served& served, CallPtr call);
void GetOllamaModels(Served& served, CallPtr call);

// For the workers.
void PostChatCompletions(Served& served, CallPtr call);
void PostCompletions(Served& served, CallPtr call);
void PostLlamaCompletion(Served& served, CallPtr call);
void PostInfill(Served& served, CallPtr call);
void PostFimCompletions(Served& served, CallPtr call);
void PostOllamaShow(Served& served, CallPtr call);
void PostOllamaChat(Served& served, CallPtr call);
void PostOllamaGenerate(Served& served, CallPtr call);
void PostMessages(Served& served, CallPtr call);
void PostCountTokens(Served& served, CallPtr call);
void PostResponses(Served& served, CallPtr call);
void PostTokenize(Served& served, CallPtr call);
void PostDetokenize(Served& served, CallPtr call);
void PostApplyTemplate(Served& served, CallPtr call);
void PostSlot(Served& served, CallPtr call);

// What several of them share.

// The body as JSON; null after an error was sent.
std::unique_ptr<nlohmann::ordered_json> BodyOf(const Served& served, Call& call);
// A request whose prompts are tokens, one list for each of them.
struct Prepared {
  std::shared_ptr<api::Request> request;  // changes no more once it is prepared
  std::vector<std::vector<int32_t>> prompts = {};
  chat::ReadingForm reading = {};  // of the answers
};
// Turns what the request says of its prompts, of biases and of predictions into tokens. False after an error
// was sent.
bool PrepareTokens(const Served& served, Prepared& prepared, Call& call);
// What a body says, ready for a job; null after an error was sent.
std::unique_ptr<Prepared> PreparedOf(Served& served, std::variant<api::Request, api::Error> parsed,
                                     Call& call);
api::FormParts FormPartsOf(const Served& served, const Call& call, const Prepared& prepared);
// Compiles the grammar first, here and not on the engine's thread: others are written meanwhile.
void Generate(Served& served, Prepared& prepared, std::unique_ptr<api::AnswerForm> form, const CallPtr& call);
api::ResponseHead HeadOf(const Served& served, const Call& call);

}  // namespace longspec::server
