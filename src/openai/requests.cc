// SPDX-License-Identifier: Apache-2.0
#include "openai/requests.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "openai/answer_form.h"
#include "openai/fields.h"
#include "openai/json.h"
#include "openai/messages.h"

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kMostInt64 = std::numeric_limits<int64_t>::max();
constexpr float kMostPenalty = 100.0F;  // of repeat_penalty: beyond it a token is as good as forbidden

// Fields that only say who asks, how soon, or how to be quick about it.
constexpr std::string_view kWithoutEffect[] = {
    "user",         "metadata",           "store",          "service_tier",           "safety_identifier",
    "prediction",   "prompt_cache_key",   "stream_options", "prompt_cache_retention", "prompt_cache_options",
    "cache_prompt", "parallel_tool_calls"};

// Fields that would change the answer, and what they may say all the same: the JSON text of a list.
struct Unsupported {
  std::string_view name, allowed;
};
constexpr Unsupported kUnsupported[] = {
    {"functions", "[[]]"},
    {"function_call", R"(["none", "auto"])"},
    {"logprobs", "[false]"},
    {"top_logprobs", "[0]"},
    {"modalities", R"([["text"]])"},
    {"audio", "[]"},
    {"web_search_options", "[]"},
    {"reasoning_effort", R"(["none"])"},
    {"verbosity", R"(["medium"])"},
    {"echo", "[false]"},
    {"suffix", R"([""])"},
    // What other engines add to constrain answers.
    {"structured_outputs", "[]"},
    {"guided_json", "[]"},
    {"guided_regex", "[]"},
    {"guided_choice", "[]"},
    {"guided_grammar", "[]"},
};

void ParseLimit(Endpoint endpoint, Fields& fields, GenerationRequest* request) {
  const bool chat = endpoint == Endpoint::kChatCompletions;
  bool given = fields.Integer("max_tokens", 1, kMostInt64, &request->n_predict);
  if (chat) given |= fields.Integer("max_completion_tokens", 1, kMostInt64, &request->n_predict);
  if (!given && !chat && request->n_predict < 0) request->n_predict = kDefaultCompletionTokens;
}

void ParseStop(Fields& fields, std::vector<std::string>* stop) {
  const Json* value = fields.Find("stop");
  if (value == nullptr) return;
  stop->clear();
  if (value->is_string()) {
    stop->push_back(value->get<std::string>());
  } else if (value->is_array() && value->size() <= kMostStopStrings &&
             std::all_of(value->begin(), value->end(), [](const Json& s) { return s.is_string(); })) {
    *stop = value->get<std::vector<std::string>>();
  } else {
    fields.Fail("stop", "must be a text or a list of up to " + std::to_string(kMostStopStrings) + " texts",
                "invalid_type");
  }
  if (std::any_of(stop->begin(), stop->end(), [](const std::string& s) { return s.empty(); }))
    fields.Fail("stop", "must not hold an empty text", "invalid_value");
}

// -1 asks for a fresh one, as it does on the command line; other negative numbers are seeds like any other.
void ParseSeed(Fields& fields, std::optional<uint64_t>* seed) {
  const Json* value = fields.Find("seed");
  if (value == nullptr) return;
  if (!value->is_number_integer()) {
    fields.Fail("seed", "must be a whole number below 2^64, not " + Describe(*value), "invalid_type");
  } else if (value->is_number_unsigned()) {
    *seed = value->get<uint64_t>();
  } else if (value->get<int64_t>() == -1) {
    seed->reset();
  } else {
    *seed = static_cast<uint64_t>(value->get<int64_t>());
  }
}

// {"15043": -100, ...}
void ParseLogitBias(Fields& fields, std::vector<std::pair<int32_t, float>>* biases) {
  const Json* value = fields.Find("logit_bias");
  if (value == nullptr) return;
  biases->clear();
  if (!value->is_object()) {
    return fields.Fail("logit_bias", "must be an object of token numbers and biases, not " + Describe(*value),
                       "invalid_type");
  }
  for (const auto& [key, bias] : value->items()) {
    int32_t token = -1;
    const char* end = key.data() + key.size();
    const auto [parsed, error] = std::from_chars(key.data(), end, token);
    if (error != std::errc() || parsed != end || token < 0)
      return fields.Fail("logit_bias", "must have token numbers as keys", "invalid_value");
    if (!bias.is_number() || !(bias.get<double>() >= -100.0 && bias.get<double>() <= 100.0))
      return fields.Fail("logit_bias", "must have numbers from -100 to 100 as values", "invalid_value");
    biases->emplace_back(token, bias.get<float>());
  }
}

void ParseSampling(Fields& fields, SamplingOptions* sampling) {
  fields.Number("temperature", 0.0, 2.0, &sampling->temperature);
  fields.Number("top_p", 0.0, 1.0, &sampling->top_p);
  fields.Number("min_p", 0.0, 1.0, &sampling->min_p);
  fields.Integer("top_k", -1, kMostInt64, &sampling->top_k);
  fields.Number("presence_penalty", -2.0, 2.0, &sampling->presence_penalty);
  fields.Number("frequency_penalty", -2.0, 2.0, &sampling->frequency_penalty);
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    fields.Number(name, 1 / kMostPenalty, kMostPenalty, &sampling->repeat_penalty);
  fields.Integer("repeat_last_n", -1, kMostInt64, &sampling->repeat_last_n);
  ParseLogitBias(fields, &sampling->logit_bias);
  ParseSeed(fields, &sampling->seed);
}

void ParseTokens(const Json& value, Fields& fields, std::vector<int32_t>* tokens) {
  tokens->reserve(value.size());
  for (const Json& token : value) {
    const int64_t id = token.is_number_integer() ? token.get<int64_t>() : -1;
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return fields.Fail("prompt", "must be a text or a list of token numbers, with nothing else in it",
                         "invalid_type");
    }
    tokens->push_back(static_cast<int32_t>(id));
  }
}

// A text or a list of tokens; or a list of one of these.
void ParsePrompt(Fields& fields, GenerationRequest* request) {
  const Json* value = fields.Find("prompt");
  if (value == nullptr) return fields.Missing("prompt");
  if (value->is_array() && !value->empty() && !value->front().is_number()) {
    if (value->size() > 1) {
      return fields.Fail("prompt", "must be one prompt: a list of several is not supported",
                         "unsupported_value");
    }
    value = &value->front();
  }
  if (value->is_string()) {
    request->prompt = value->get_ref<const std::string&>();
  } else if (value->is_array()) {
    ParseTokens(*value, fields, &request->tokens);
  } else {
    return fields.Fail("prompt", "must be a text or a list of token numbers, not " + Describe(*value),
                       "invalid_type");
  }
  if (request->prompt.empty() && request->tokens.empty())
    fields.Fail("prompt", "must not be empty", "invalid_value");
}

void ParseChat(Fields& fields, GenerationRequest* request) {
  const Json* value = fields.Find("messages");
  if (value == nullptr) return fields.Missing("messages");
  auto messages = ParseMessages(*value);
  if (auto* error = std::get_if<ApiError>(&messages)) return fields.Fail(std::move(*error));
  request->messages = std::get<std::vector<Message>>(std::move(messages));
}

// best_of answers of which the likeliest n are kept: with as many as n, none is left out.
void ParseChoices(Fields& fields, int* n) {
  fields.Integer("n", 1, kMostChoices, n);
  const Json* best_of = fields.Find("best_of");
  if (best_of != nullptr && *best_of != *n)
    fields.Fail("best_of", "is not supported", "unsupported_parameter");
}

}  // namespace

GenerationRequest DefaultRequest() {
  GenerationRequest request;
  request.sampling.temperature = 1.0F;
  request.sampling.top_k = 0;
  request.sampling.top_p = 1.0F;
  request.sampling.min_p = 0.0F;
  return request;
}

std::variant<ApiRequest, ApiError> ParseRequest(Endpoint endpoint, const Json& body,
                                                const GenerationRequest& defaults) {
  ApiRequest request{.endpoint = endpoint, .generation = defaults};
  GenerationRequest& generation = request.generation;
  generation.prompt.clear();
  generation.messages.clear();
  generation.tokens.clear();
  Fields fields(body, "");
  fields.Text("model", &request.model);
  fields.Bool("stream", &request.stream);
  fields.Bool("ignore_eos", &generation.ignore_eos);
  for (const std::string_view name : kWithoutEffect) fields.Find(name);
  for (const Unsupported& field : kUnsupported) fields.Only(field.name, field.allowed);
  ParseChoices(fields, &request.n);
  ParseLimit(endpoint, fields, &generation);
  ParseStop(fields, &generation.stop);
  ParseAnswerForm(fields, &generation.grammar);
  if (endpoint == Endpoint::kChatCompletions) ParseTools(fields, &request.tools);
  ParseSampling(fields, &generation.sampling);
  if (endpoint == Endpoint::kChatCompletions) {
    ParseChat(fields, &generation);
  } else {
    ParsePrompt(fields, &generation);
  }
  if (fields.error()) return *fields.error();
  request.unknown = fields.Unknown();
  return request;
}

}  // namespace longspec::openai
