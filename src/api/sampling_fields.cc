// SPDX-License-Identifier: Apache-2.0
#include "api/sampling_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "api/fields.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

struct Sampler {
  std::string_view name;
  std::string_view alias;
  void (*turn_off)(SamplingOptions*);
  void (*turn_on)(SamplingOptions*) = nullptr;  // null: its options say how much there is of it
};

// In the order in which they run.
constexpr Sampler kOurs[] = {
    {"penalties", "penalties",
     [](SamplingOptions* o) { o->repeat_penalty = 1, o->presence_penalty = 0, o->frequency_penalty = 0; }},
    {"top_k", "top-k", [](SamplingOptions* o) { o->top_k = 0; }},
    {"top_p", "top-p", [](SamplingOptions* o) { o->top_p = 1; }},
    {"min_p", "min-p", [](SamplingOptions* o) { o->min_p = 0; }},
    {"infill", "infill", [](SamplingOptions* o) { o->infill = false; },
     [](SamplingOptions* o) { o->infill = true; }},
    {"temperature", "temp", [](SamplingOptions* o) { o->temperature = 1; }},
};

// Others of llama.cpp.
constexpr std::string_view kTheirs[] = {"dry",     "top_n_sigma", "top-n-sigma", "typ_p",      "typ-p",
                                        "typical", "typical_p",   "xtc",         "adaptive_p", "mirostat"};

constexpr std::pair<char, std::string_view> kLetters[] = {
    {'e', "penalties"},   {'d', "dry"},    {'s', "top_n_sigma"}, {'k', "top_k"},
    {'y', "typ_p"},       {'p', "top_p"},  {'m', "min_p"},       {'x', "xtc"},
    {'t', "temperature"}, {'i', "infill"}, {'a', "adaptive_p"},
};

constexpr auto kLargest = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostToken = std::numeric_limits<int32_t>::max();
constexpr size_t kMostBadWords = 1024;
constexpr float kMostPenalty = 100.0F;  // of repeat_penalty: beyond it a token is as good as forbidden

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
void ParseSeed(Fields& fields, std::string_view name, std::optional<uint64_t>* seed) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return;
  const auto number = WholeNumber(*value);
  if (!number || IsLongInteger(*value) || (value->is_number_float() && *number == kLargest)) {
    fields.Fail(name, "must be a whole number below 2^64, not " + Describe(*value), "invalid_type");
  } else if (value->is_number_unsigned()) {
    *seed = value->get<uint64_t>();
  } else if (*number == -1) {
    seed->reset();
  } else {
    *seed = static_cast<uint64_t>(*number);
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
  const auto number = NumberOf(value);
  if (number && *number >= -100.0 && *number <= 100.0) *bias = static_cast<float>(*number);
  return !std::isnan(*bias);
}

// {"15043": -100, " Hello": -100, ...} or, as llama.cpp has it, [[15043, -100], [" Hello", false], ...]:
// texts stand for all their tokens, in the list also those of digits.
void ParseLogitBias(Fields& fields, Request* request) {
  const Json* value = fields.Find("logit_bias");
  if (value == nullptr) return;
  auto& biases = request->generation.sampling.logit_bias;
  biases.clear();
  if (!value->is_object() && !value->is_array()) {
    return fields.Fail(
        "logit_bias",
        "must be an object of tokens and biases or a list of pairs of them, not " + Describe(*value),
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
    } else if (key.is_string()) {
      request->text_bias.emplace_back(key.get_ref<const std::string&>(), number);
    } else if (const auto id = WholeNumber(key); id && *id >= 0 && *id <= kMostToken) {
      biases.emplace_back(static_cast<int32_t>(*id), number);
    } else {
      fields.Fail("logit_bias", "must have token numbers or texts as keys", "invalid_value");
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

// A list of names, or a text of letters: those that are left out are turned off.
void ParseSamplers(Fields& fields, Request* request) {
  const Json* value = fields.Find("samplers");
  if (value == nullptr) return;
  std::vector<std::string> names;
  Status known;
  if (value->is_string()) {
    auto of_letters = SamplersOfLetters(value->get_ref<const std::string&>());
    known = of_letters.status();
    if (of_letters.ok()) names = std::move(*of_letters);
  } else if (value->is_array() && std::ranges::all_of(*value, &Json::is_string)) {
    names = value->get<std::vector<std::string>>();
  } else {
    return fields.Fail("samplers", "must be a list of names", "invalid_type");
  }
  if (known.ok()) {
    const auto left = KeepSamplers(names, &request->generation.sampling);
    known = left.status();
    for (const std::string& name : left.ok() ? left->missing : std::vector<std::string>())
      request->ignored.push_back("samplers: " + name);
  }
  if (!known.ok())
    fields.Fail("samplers", "must name those that there are: " + known.message(), "invalid_value");
}

void ParseTokenIds(Fields& fields, std::string_view name, std::vector<int32_t>* tokens) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return;
  tokens->clear();
  const bool right = value->is_array() && value->size() <= kMostBiases &&
                     std::ranges::all_of(*value, [&](const Json& token) {
                       const auto id = WholeNumber(token);
                       if (!id || *id < 0 || *id > kMostToken) return false;
                       tokens->push_back(static_cast<int32_t>(*id));
                       return true;
                     });
  if (!right) fields.Fail(name, "must be a list of token numbers", "invalid_type");
}

}  // namespace

Result<SamplersLeft> KeepSamplers(std::span<const std::string> names, SamplingOptions* options) {
  std::array<bool, std::size(kOurs)> listed{};
  SamplersLeft left;
  size_t furthest = 0;
  for (const std::string& name : names) {
    const auto* ours =
        std::ranges::find_if(kOurs, [&](const Sampler& s) { return s.name == name || s.alias == name; });
    if (ours != std::end(kOurs)) {
      const auto at = static_cast<size_t>(ours - kOurs);
      listed[at] = true;
      left.in_order = left.in_order && at >= furthest;
      furthest = std::max(furthest, at);
    } else if (std::ranges::find(kTheirs, name) != std::end(kTheirs)) {
      left.missing.push_back(name);
    } else {
      return InvalidArgument("unknown sampler '" + name + "'; known are " + std::string(kAllSamplers));
    }
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    if (!listed[i]) {
      kOurs[i].turn_off(options);
    } else if (kOurs[i].turn_on != nullptr) {
      kOurs[i].turn_on(options);
    }
  }
  return left;
}

Result<std::vector<std::string>> SamplersOfLetters(std::string_view letters) {
  std::vector<std::string> names;
  for (const char letter : letters) {
    const auto* known = std::ranges::find(kLetters, letter, &std::pair<char, std::string_view>::first);
    if (known == std::end(kLetters))
      return InvalidArgument("unknown sampler '" + std::string(1, letter) +
                             "'; known letters are edskypmxtia");
    names.emplace_back(known->second);
  }
  return names;
}

void ParseSampling(Endpoint endpoint, Fields& fields, Request* request) {
  SamplingOptions* sampling = &request->generation.sampling;
  const double hottest = IsLlamas(endpoint) ? 100.0 : 2.0;
  fields.Number("temperature", 0.0, hottest, &sampling->temperature);
  fields.Number("top_p", 0.0, 1.0, &sampling->top_p);
  fields.Number("min_p", 0.0, 1.0, &sampling->min_p);
  fields.Integer("top_k", -1, kLargest, &sampling->top_k);
  fields.Number("presence_penalty", -2.0, 2.0, &sampling->presence_penalty);
  fields.Number("frequency_penalty", -2.0, 2.0, &sampling->frequency_penalty);
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    fields.Number(name, 1 / kMostPenalty, kMostPenalty, &sampling->repeat_penalty);
  fields.Integer("repeat_last_n", -1, kLargest, &sampling->repeat_last_n);
  ParseLogitBias(fields, request);
  for (const char* name : {"random_seed", "seed"}) ParseSeed(fields, name, &sampling->seed);
  ParseSamplers(fields, request);  // after what it turns off
}

// A limit of -1 is none, as llama.cpp has it; OpenAI's limit of a text completion is where nothing is said.
void ParseLimits(Endpoint endpoint, Fields& fields, GenerationRequest* request) {
  bool given = false;
  // The last one that is given counts, as with llama.cpp.
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"})
    given |= fields.Integer(name, -1, kLargest, &request->n_predict);
  if (!given && endpoint == Endpoint::kCompletions && request->n_predict < 0)
    request->n_predict = kDefaultCompletionTokens;
  fields.Integer("min_tokens", 0, kLargest, &request->min_tokens);
  if (request->n_predict >= 0 && request->min_tokens > request->n_predict)
    fields.Fail("min_tokens", "must be at most max_tokens, " + std::to_string(request->n_predict),
                "invalid_value");
  if (fields.Integer("truncate_prompt_tokens", -1, kLargest, &request->truncate_prompt_tokens) &&
      request->truncate_prompt_tokens == 0)
    fields.Fail("truncate_prompt_tokens", "must be -1 (what the context has room for) or at least 1",
                "invalid_value");
}

void ParseEnds(Fields& fields, GenerationRequest* request) {
  fields.Bool("ignore_eos", &request->ignore_eos);
  fields.Integer("n_indent", -1, kLargest, &request->n_indent);
  ParseStop(fields, &request->stop);
  ParseTokenIds(fields, "stop_token_ids", &request->stop_tokens);
  for (const char* name : {"no_stop_trim", "include_stop_str_in_output"})
    fields.Bool(name, &request->include_stop);
}

void ParseTokenRules(Fields& fields, GenerationRequest* request) {
  const Json* allowed = fields.Find("allowed_token_ids");
  ParseTokenIds(fields, "allowed_token_ids", &request->allowed_tokens);
  if (allowed != nullptr && request->allowed_tokens.empty())
    fields.Fail("allowed_token_ids", "must not be empty: no token could be chosen", "invalid_value");
  const Json* words = fields.Find("bad_words");
  if (words == nullptr) return;
  size_t n_bytes = 0;
  const bool right = words->is_array() && words->size() <= kMostBadWords &&
                     std::ranges::all_of(*words, [&](const Json& word) {
                       if (!word.is_string()) return false;
                       const auto& text = word.get_ref<const std::string&>();
                       n_bytes += text.size();
                       return text.find_first_not_of(' ') != std::string::npos && n_bytes <= kMostStopBytes;
                     });
  if (!right) {
    return fields.Fail("bad_words",
                       "must be a list of up to " + std::to_string(kMostBadWords) +
                           " texts, none of them empty, with at most " + std::to_string(kMostStopBytes) +
                           " bytes in all",
                       "invalid_type");
  }
  request->bad_words = words->get<std::vector<std::string>>();
}

}  // namespace longspec::api
