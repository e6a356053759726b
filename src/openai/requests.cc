// SPDX-License-Identifier: Apache-2.0
#include "openai/requests.h"

#include <algorithm>
#include <charconv>
#include <cmath>
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
constexpr int kMostDraftRows = 255;     // as the engine has it
constexpr int kLongestPing = 3600;      // seconds
constexpr float kMostPenalty = 100.0F;  // of repeat_penalty: beyond it a token is as good as forbidden

// Fields that only say who asks, how soon, or how to be quick about it.
constexpr std::string_view kWithoutEffect[] = {
    "user",         "metadata",           "store",         "service_tier",           "safety_identifier",
    "cache_prompt", "prompt_cache_key",   "n_keep",        "prompt_cache_retention", "prompt_cache_options",
    "id_slot",      "n_discard",          "min_keep",      "parallel_tool_calls",    "dry_base",
    "penalize_nl",  "dry_allowed_length", "mirostat_tau",  "mirostat_eta",           "dynatemp_exponent",
    "slot_id",      "dry_penalty_last_n", "xtc_threshold", "dry_sequence_breakers"};

// Fields that would change the answer, and what they may say all the same: the JSON text of a list.
struct Unsupported {
  std::string_view name, allowed;
};
constexpr Unsupported kUnsupported[] = {
    {"functions", "[[]]"},
    {"function_call", R"(["none", "auto"])"},
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
    // Samplers of llama.cpp that are not here, where they would do something.
    {"typical_p", "[1]"},
    {"dynatemp_range", "[0]"},
    {"xtc_probability", "[0]"},
    {"dry_multiplier", "[0]"},
    {"mirostat", "[0]"},
    {"top_n_sigma", "[-1]"},
    {"samplers", "[]"},
    {"n_indent", "[0]"},
    {"lora", "[[]]"},
    {"post_sampling_probs", "[false]"},
    {"chat_template_kwargs", "[{}]"},
};

void ParseLimit(Endpoint endpoint, Fields& fields, GenerationRequest* request) {
  if (endpoint == Endpoint::kLlamaCompletion) {
    fields.Integer("max_tokens", -1, kMostInt64, &request->n_predict);
    fields.Integer("n_predict", -1, kMostInt64, &request->n_predict);
    return;
  }
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
  size_t bytes = 0;
  for (const std::string& s : *stop) bytes += s.size();
  if (bytes > kMostStopBytes) {
    stop->clear();
    fields.Fail("stop", "must have at most " + std::to_string(kMostStopBytes) + " bytes in all",
                "invalid_value");
  }
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

bool IsTokenNumber(std::string_view text, int32_t* token) {
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, *token);
  return error == std::errc() && parsed == end && *token >= 0;
}

// A number, or false: never.
bool ParseBias(const Json& value, float* bias) {
  if (value == false) *bias = -std::numeric_limits<float>::infinity();
  if (value.is_number() && value.get<double>() >= -100.0 && value.get<double>() <= 100.0)
    *bias = value.get<float>();
  return !std::isnan(*bias);
}

// {"15043": -100, ...}, or as llama.cpp has it, where texts, also those of digits, stand for all their
// tokens:
// [[15043, -100], [" Hello", false], ...].
void ParseLogitBias(Fields& fields, ApiRequest* request) {
  const Json* value = fields.Find("logit_bias");
  if (value == nullptr) return;
  auto& biases = request->generation.sampling.logit_bias;
  biases.clear();
  if (!value->is_object() && !value->is_array()) {
    return fields.Fail("logit_bias", "must be an object of token numbers and biases, not " + Describe(*value),
                       "invalid_type");
  }
  const auto add = [&](const Json& key, const Json& bias, bool texts) {
    float number = std::numeric_limits<float>::quiet_NaN();
    if (!ParseBias(bias, &number)) {
      fields.Fail("logit_bias", "must have numbers from -100 to 100 as values", "invalid_value");
      return;
    }
    int32_t token = -1;
    if (key.is_string() && !texts && IsTokenNumber(key.get_ref<const std::string&>(), &token)) {
      biases.emplace_back(token, number);
    } else if (key.is_string() && texts) {
      request->text_bias.emplace_back(key.get_ref<const std::string&>(), number);
    } else if (key.is_number_integer() && key >= 0 && key <= std::numeric_limits<int32_t>::max()) {
      biases.emplace_back(key.get<int32_t>(), number);
    } else {
      fields.Fail("logit_bias", "must have token numbers as keys", "invalid_value");
    }
  };
  if (value->size() > kMostBiases) {
    return fields.Fail("logit_bias", "must have at most " + std::to_string(kMostBiases) + " entries",
                       "invalid_value");
  }
  if (value->is_object()) {
    for (const auto& [key, bias] : value->items()) add(key, bias, false);
    return;
  }
  for (const Json& pair : *value) {
    if (!pair.is_array() || pair.size() != 2)
      return fields.Fail("logit_bias", "must be a list of pairs of a token and a bias", "invalid_type");
    add(pair[0], pair[1], true);
  }
}

void ParseSampling(Endpoint endpoint, Fields& fields, ApiRequest* request) {
  SamplingOptions* sampling = &request->generation.sampling;
  const double hottest = endpoint == Endpoint::kLlamaCompletion ? 100.0 : 2.0;
  fields.Number("temperature", 0.0, hottest, &sampling->temperature);
  fields.Number("top_p", 0.0, 1.0, &sampling->top_p);
  fields.Number("min_p", 0.0, 1.0, &sampling->min_p);
  fields.Integer("top_k", -1, kMostInt64, &sampling->top_k);
  fields.Number("presence_penalty", -2.0, 2.0, &sampling->presence_penalty);
  fields.Number("frequency_penalty", -2.0, 2.0, &sampling->frequency_penalty);
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    fields.Number(name, 1 / kMostPenalty, kMostPenalty, &sampling->repeat_penalty);
  fields.Integer("repeat_last_n", -1, kMostInt64, &sampling->repeat_last_n);
  ParseLogitBias(fields, request);
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

// llama.cpp's: a text, a list of tokens, or a list in which both are mixed; {"prompt_string": ...} is a text.
void ParseLlamaPrompt(Fields& fields, ApiRequest* request) {
  const Json* value = fields.Find("prompt");
  if (value == nullptr) return fields.Missing("prompt");
  if (value->is_object()) {
    if (value->contains("multimodal_data"))
      return fields.Fail("prompt.multimodal_data", "is not supported", "unsupported_value");
    const auto text = value->find("prompt_string");
    if (text == value->end() || !text->is_string())
      return fields.Fail("prompt.prompt_string", "must be a text", "invalid_type");
    value = &*text;
  }
  const bool mixed = value->is_array() && value->size() > 1 &&
                     std::ranges::any_of(*value, [](const Json& part) { return part.is_string(); });
  if (!mixed) {
    if (value->is_string()) {
      request->generation.prompt = value->get_ref<const std::string&>();
      if (request->generation.prompt.empty()) fields.Fail("prompt", "must not be empty", "invalid_value");
      return;
    }
    return ParsePrompt(fields, &request->generation);
  }
  for (const Json& part : *value) {
    if (part.is_string()) {
      request->prompt_parts.push_back({.text = part.get_ref<const std::string&>(), .tokens = {}});
      continue;
    }
    if (request->prompt_parts.empty() || request->prompt_parts.back().tokens.empty())
      request->prompt_parts.emplace_back();
    ParseTokens(Json::array({part}), fields, &request->prompt_parts.back().tokens);
    if (fields.error()) return;
  }
}

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
void ParsePrediction(Fields& fields, ApiRequest* request) {
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
void ParseSpeculative(Fields& fields, SpeculationOptions* options) {
  const Json* value = fields.Find("speculative");
  if (value == nullptr) return;
  if (value->is_boolean()) {
    if (*value == false) options->type = "none";
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
    if (!names.empty()) options->type = names;
  }
  int max_rows = -1;
  if (speculative.Integer("max_rows", 0, kMostDraftRows, &max_rows)) {
    options->draft_n_max = options->adaptive_n_max = max_rows;
    options->draft_n_min = std::min(options->draft_n_min, max_rows);
  }
  if (!enabled || max_rows == 0) options->type = "none";
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
  fields.Integer("t_max_predict_ms", -1, kMostInt64, &wishes->t_max_predict_ms);
  const Json* kept = fields.Find("response_fields");
  if (kept == nullptr) return;
  if (endpoint != Endpoint::kLlamaCompletion)
    return fields.Fail("response_fields", "is not supported here", "unsupported_parameter");
  if (!kept->is_array() || !std::ranges::all_of(*kept, [](const Json& name) { return name.is_string(); }))
    return fields.Fail("response_fields", "must be a list of texts", "invalid_type");
  wishes->response_fields = kept->get<std::vector<std::string>>();
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
  fields.Integer("n_cmpl", 1, kMostChoices, n);
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
  fields.Bool("ignore_eos", &generation.ignore_eos);
  for (const std::string_view name : kWithoutEffect) fields.Find(name);
  for (const Unsupported& field : kUnsupported) fields.Only(field.name, field.allowed);
  ParseWishes(endpoint, fields, &request.wishes);
  ParseChoices(fields, &request.n);
  ParseLimit(endpoint, fields, &generation);
  ParseStop(fields, &generation.stop);
  ParseAnswerForm(fields, &request);
  if (endpoint == Endpoint::kChatCompletions) ParseTools(fields, &request.tools);
  ParseSampling(endpoint, fields, &request);
  ParseLogprobs(endpoint, fields, &generation);
  ParsePrediction(fields, &request);
  ParseSpeculative(fields, &generation.speculation);
  switch (endpoint) {
    case Endpoint::kChatCompletions:
      ParseChat(fields, &generation);
      break;
    case Endpoint::kCompletions:
      ParsePrompt(fields, &generation);
      break;
    case Endpoint::kLlamaCompletion:
      ParseLlamaPrompt(fields, &request);
      break;
  }
  if (fields.error()) return *fields.error();
  request.unknown = fields.Unknown();
  return request;
}

}  // namespace longspec::openai
