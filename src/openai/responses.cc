// SPDX-License-Identifier: Apache-2.0
#include "openai/responses.h"

#include <algorithm>

#include "base/check.h"

namespace longspec::openai {
namespace {

using OrderedJson = nlohmann::ordered_json;

double PerSecond(int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1000.0 / ms : 0.0; }

// A full context is a length, too.
const char* FinishReasonName(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

OrderedJson ChoiceJson(Endpoint endpoint, size_t index, const GenerationResult& answer) {
  OrderedJson choice;
  if (endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["message"] = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = answer.text;
    choice["index"] = index;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishReasonName(answer.finish_reason);
  return choice;
}

// Of several answers the first may have evaluated the prompt which the others found in the cache.
OrderedJson UsageJson(std::span<const GenerationResult> answers) {
  const Timings& first = answers.front().timings;
  int64_t cached = first.cache_n, completion = 0;
  for (const GenerationResult& answer : answers) {
    cached = std::min(cached, answer.timings.cache_n);
    completion += answer.timings.predicted_n;
  }
  const int64_t prompt = first.cache_n + first.prompt_n;
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

}  // namespace

OrderedJson TimingsJson(const Timings& t) {
  return {{"cache_n", t.cache_n},
          {"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_second", PerSecond(t.prompt_n, t.prompt_ms)},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_per_second", PerSecond(t.predicted_n, t.predicted_ms)},
          {"draft_n", t.draft_n},
          {"draft_n_accepted", t.draft_n_accepted}};
}

OrderedJson ResponseJson(Endpoint endpoint, const ResponseHead& head,
                         std::span<const GenerationResult> answers) {
  LS_CHECK(!answers.empty());
  const bool chat = endpoint == Endpoint::kChatCompletions;
  OrderedJson response = {{"id", (chat ? "chatcmpl-" : "cmpl-") + head.id},
                          {"object", chat ? "chat.completion" : "text_completion"},
                          {"created", head.created},
                          {"model", head.model}};
  OrderedJson& choices = response["choices"] = OrderedJson::array();
  for (size_t i = 0; i < answers.size(); ++i) choices.push_back(ChoiceJson(endpoint, i, answers[i]));
  response["usage"] = UsageJson(answers);
  response["seed"] = answers.front().seed;
  if (answers.size() == 1) response["timings"] = TimingsJson(answers.front().timings);
  return response;
}

}  // namespace longspec::openai
