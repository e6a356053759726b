// SPDX-License-Identifier: Apache-2.0
#include "api/shared_fields.h"

#include <limits>
#include <utility>

#include "api/field_rules.h"
#include "api/grammar_fields.h"
#include "api/messages.h"
#include "api/sampling_fields.h"
#include "api/template_fields.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kMostInt64 = std::numeric_limits<int64_t>::max();
constexpr int kMostDraftRows = 255;  // as the engine has it
constexpr int kLongestPing = 3600;   // seconds

// Chances of tokens: `logprobs` and `top_logprobs` of a chat, the number `logprobs` of a text completion, and
// llama.cpp's n_probs.
void ParseLogprobs(Endpoint endpoint, Fields& fields, GenerationRequest* request) {
  int n = 0;
  if (endpoint == Endpoint::kChatCompletions) {
    bool wanted = false;
    fields.Bool("logprobs", &wanted);
    fields.Integer("top_logprobs", 0, kMostLogprobs, &n);
    if (wanted) request->n_logprobs = n;
    if (!wanted && n > 0) fields.Fail("top_logprobs", "is given, but logprobs is not true", "invalid_value");
  } else {
    fields.Only("top_logprobs", "[0]");
    const Json* value = fields.Find("logprobs");
    if (value != nullptr && *value != false && fields.Integer("logprobs", 0, kMostLogprobs, &n))
      request->n_logprobs = n;
  }
  if (fields.Integer("n_probs", 0, kMostLogprobs, &n) && n > 0) request->n_logprobs = n;
}

// {"type": "content", "content": a text or parts of type "text"}
void ParsePrediction(Fields& fields, Request* request) {
  const Json* value = fields.Find("prediction");
  if (value == nullptr) return;
  Fields prediction(*value, "prediction");
  std::string type;
  prediction.Text("type", &type);
  if (!type.empty() && type != "content") prediction.Fail("type", "must be \"content\"", "invalid_value");
  std::string content;
  ParseTextContent(prediction, "content", &content);
  if (prediction.error()) return fields.Fail(*prediction.error());
  request->prediction = std::move(content);
}

// {"enabled": false}, {"drafters": "ngram,suffix" or a list of them}, {"max_rows": 4}. It never changes what
// an answer says, so anybody may choose.
void ParseSpeculative(Fields& fields, SpeculativeWish* wish) {
  const Json* value = fields.Find("speculative");
  if (value == nullptr) return;
  if (value->is_boolean()) {
    if (*value == false) wish->type = "none";
    return;
  }
  Fields speculative(*value, "speculative");
  bool enabled = true;
  speculative.Bool("enabled", &enabled);
  if (const Json* drafters = speculative.Find("drafters"); drafters != nullptr) {
    std::string names;
    const auto add = [&](const Json& name) {
      if (!name.is_string())
        return speculative.Fail("drafters", "must be a text or a list of texts", "invalid_type");
      names += (names.empty() ? "" : ",") + name.get_ref<const std::string&>();
    };
    if (drafters->is_array()) {
      for (const Json& name : *drafters) add(name);
    } else {
      add(*drafters);
    }
    wish->type = names;
  }
  speculative.Integer("max_rows", 0, kMostDraftRows, &wish->max_rows);
  for (const char* name : {"drafters", "max_rows"}) {
    if (!enabled && speculative.Find(name) != nullptr)
      speculative.Fail(name, "has no effect with enabled false", "invalid_value");
  }
  if (!enabled || wish->max_rows == 0) *wish = {.type = "none"};
  if (speculative.error()) return fields.Fail(*speculative.error());
  for (const std::string& name : speculative.Unknown())
    return fields.Fail("speculative." + name, "is not known: there are enabled, drafters and max_rows",
                       "invalid_value");
}

void ParseWishes(Endpoint endpoint, Fields& fields, AnswerWishes* wishes) {
  fields.Bool("stream", &wishes->stream);
  if (const Json* value = fields.Find("stream_options"); value != nullptr) {
    Fields options(*value, "stream_options");
    options.Bool("include_usage", &wishes->include_usage);
    if (options.error()) fields.Fail(*options.error());
  }
  fields.Bool("timings_per_token", &wishes->timings_per_token);
  fields.Bool("return_progress", &wishes->return_progress);
  fields.Bool("return_tokens", &wishes->return_tokens);
  fields.Bool("return_token_source", &wishes->return_token_source);
  fields.Integer("sse_ping_interval", -1, kLongestPing, &wishes->sse_ping_interval);
  for (const char* name : {"slot_id", "id_slot"})  // the first: its older name
    fields.Integer(name, -1, kMostInt64, &wishes->id_slot);
  fields.Integer("t_max_predict_ms", -1, kMostInt64, &wishes->t_max_predict_ms);
  if (endpoint == Endpoint::kChatCompletions) wishes->thoughts = ParseThoughtsPlace(fields, wishes->thoughts);
  if (endpoint == Endpoint::kCompletions) fields.Bool("echo", &wishes->echo);
}

// Limits of a thought, which clients of Anthropic have to give.
void NoteThinkingLimit(Fields& fields, std::vector<std::string>* ignored) {
  for (const auto& [name, limit] :
       {std::pair("thinking", "budget_tokens"), std::pair("reasoning", "max_tokens")}) {
    const Json* thinking = fields.Find(name);
    if (thinking != nullptr && thinking->is_object() && thinking->contains(limit))
      ignored->push_back(std::string(name) + "." + limit);
  }
}

// best_of answers of which the likeliest n are kept: with as many as n, none is left out.
void ParseChoices(Fields& fields, int* n) {
  fields.Integer("n", 1, kMostChoices, n);
  fields.Integer("n_cmpl", 1, kMostChoices, n);
  const Json* best_of = fields.Find("best_of");
  if (best_of != nullptr && *best_of != *n)
    fields.Fail("best_of", "is not supported", "unsupported_parameter");
}

uint8_t ApiOf(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChatCompletions:
      return kOfChats;
    case Endpoint::kCompletions:
      return kOfTexts;
    case Endpoint::kLlamaCompletion:
    case Endpoint::kInfill:
      return kOfLlama;
  }
  return kOfAll;
}

}  // namespace

RequestDefaults OpenAiDefaults() {
  RequestDefaults defaults;
  SamplingOptions& sampling = defaults.generation.sampling;
  sampling.temperature = 1.0F;
  sampling.top_k = 0;
  sampling.top_p = 1.0F;
  sampling.min_p = 0.0F;
  return defaults;
}

Request ParseSharedFields(Endpoint endpoint, Fields& fields, const RequestDefaults& defaults) {
  Request request{.endpoint = endpoint, .generation = defaults.generation};
  request.wishes.thoughts = defaults.thoughts;
  GenerationRequest& generation = request.generation;
  generation.prompt.clear();
  generation.messages.clear();
  generation.tokens.clear();
  if (endpoint != Endpoint::kChatCompletions) generation.template_variables.clear();
  fields.Text("model", &request.model);
  KeepRules(CompletionRules(), ApiOf(endpoint), fields, &request.ignored);
  ParseWishes(endpoint, fields, &request.wishes);
  ParseChoices(fields, &request.n);
  ParseLimits(endpoint, fields, &generation);
  fields.Bool("cache_prompt", &generation.cache_prompt);
  ParseEnds(fields, &generation);
  ParseTokenRules(fields, &generation);
  ParseAnswerForm(fields, &request);
  ParseSampling(endpoint, fields, &request);
  ParseLogprobs(endpoint, fields, &generation);
  ParsePrediction(fields, &request);
  ParseSpeculative(fields, &request.speculative);
  return request;
}

void ParseChatEnd(Fields& fields, Request* request) {
  if (fields.error()) return;
  ParseTemplateFields(fields, &request->generation);
  NoteThinkingLimit(fields, &request->ignored);
}

std::variant<Request, Error> Parsed(const Fields& fields, Request request, GrammarText grammar,
                                    std::string grammar_field) {
  if (fields.error()) return *fields.error();
  request.unknown = fields.Unknown();
  if (grammar.kind != GrammarText::Kind::kNone) {
    if (auto error = SetAnswerForm(std::move(grammar), std::move(grammar_field), &request))
      return *std::move(error);
  }
  return request;
}

}  // namespace longspec::api
