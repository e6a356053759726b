// SPDX-License-Identifier: Apache-2.0
#include "openai/responses.h"

#include <algorithm>

#include "base/check.h"

namespace longspec::openai {
namespace {

using OrderedJson = nlohmann::ordered_json;

double PerSecond(int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1000.0 / ms : 0.0; }

double PerToken(int64_t n, double ms) { return n > 0 ? ms / static_cast<double>(n) : 0.0; }

// A full context is a length, too.
const char* FinishReasonName(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

// As llama.cpp shows it, whose `id` OpenAI's clients pass over. A token's bytes as text; what is no UTF-8 by
// itself is shown as U+FFFD when it is written.
OrderedJson TokenJson(const TokenText& token) {
  OrderedJson bytes = OrderedJson::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"id", token.id}, {"token", token.bytes}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

// A text completion's: lists by position.
OrderedJson LegacyLogprobsJson(std::span<const TokenReport> tokens) {
  OrderedJson json = {{"text_offset", OrderedJson::array()},
                      {"token_logprobs", OrderedJson::array()},
                      {"tokens", OrderedJson::array()},
                      {"top_logprobs", OrderedJson::array()}};
  for (const TokenReport& report : tokens) {
    json["text_offset"].push_back(report.text_offset);
    json["tokens"].push_back(report.token.bytes);
    if (!report.has_chance) {
      json["token_logprobs"].push_back(nullptr);
      json["top_logprobs"].push_back(nullptr);
      continue;
    }
    json["token_logprobs"].push_back(report.token.logprob);
    OrderedJson top = OrderedJson::object();
    for (const TokenText& other : report.likeliest) top[other.bytes] = other.logprob;
    json["top_logprobs"].push_back(std::move(top));
  }
  return json;
}

OrderedJson LogprobsJson(Endpoint endpoint, std::span<const TokenReport> tokens, const Shown& shown) {
  if (!shown.logprobs) return nullptr;
  if (endpoint == Endpoint::kCompletions) return LegacyLogprobsJson(tokens);
  return {{"content", LogprobsContentJson(tokens)}, {"refusal", nullptr}};
}

void AddTokens(std::span<const TokenReport> tokens, const Shown& shown, OrderedJson& choice) {
  if (shown.sources) choice["token_sources"] = SourcesJson(tokens);
  if (!shown.token_ids) return;
  OrderedJson& ids = choice["tokens"] = OrderedJson::array();
  for (const TokenReport& report : tokens) ids.push_back(report.token.id);
}

OrderedJson ChoiceJson(Endpoint endpoint, size_t index, const Answer& answer, const Shown& shown) {
  OrderedJson choice;
  if (endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["message"] = {{"role", "assistant"}, {"content", answer.result.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = answer.result.text;
    choice["index"] = index;
  }
  choice["logprobs"] = LogprobsJson(endpoint, answer.tokens, shown);
  choice["finish_reason"] = FinishReasonName(answer.result.finish_reason);
  AddTokens(answer.tokens, shown, choice);
  return choice;
}

}  // namespace

OrderedJson LogprobsContentJson(std::span<const TokenReport> tokens) {
  OrderedJson content = OrderedJson::array();
  for (const TokenReport& report : tokens) {
    OrderedJson token = TokenJson(report.token);
    OrderedJson& top = token["top_logprobs"] = OrderedJson::array();
    for (const TokenText& other : report.likeliest) top.push_back(TokenJson(other));
    content.push_back(std::move(token));
  }
  return content;
}

OrderedJson SourcesJson(std::span<const TokenReport> tokens) {
  OrderedJson sources = OrderedJson::array();
  for (const TokenReport& report : tokens)
    sources.push_back(report.source.empty() ? OrderedJson(nullptr) : OrderedJson(report.source));
  return sources;
}

// Of several answers to a prompt the first may have evaluated it; the others found it in the cache.
OrderedJson UsageJson(std::span<const Answer> answers, int n) {
  const size_t per_prompt = n > 0 ? static_cast<size_t>(n) : answers.size();
  int64_t prompt = 0, cached = 0, completion = 0, drafted = 0, accepted = 0;
  for (size_t first = 0; first < answers.size(); first += per_prompt) {
    int64_t known = answers[first].result.timings.cache_n;
    prompt += known + answers[first].result.timings.prompt_n;
    for (const Answer& answer : answers.subspan(first, std::min(per_prompt, answers.size() - first)))
      known = std::min(known, answer.result.timings.cache_n);
    cached += known;
  }
  for (const Answer& answer : answers) {
    const Timings& timings = answer.result.timings;
    completion += timings.predicted_n;
    drafted += timings.draft_n;
    accepted += timings.draft_n_accepted;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details",
           {{"accepted_prediction_tokens", accepted}, {"rejected_prediction_tokens", drafted - accepted}}}};
}

OrderedJson TimingsJson(const Timings& t) {
  return {{"cache_n", t.cache_n},
          {"prompt_n", t.prompt_n},
          {"prompt_ms", t.prompt_ms},
          {"prompt_per_token_ms", PerToken(t.prompt_n, t.prompt_ms)},
          {"prompt_per_second", PerSecond(t.prompt_n, t.prompt_ms)},
          {"predicted_n", t.predicted_n},
          {"predicted_ms", t.predicted_ms},
          {"predicted_per_token_ms", PerToken(t.predicted_n, t.predicted_ms)},
          {"predicted_per_second", PerSecond(t.predicted_n, t.predicted_ms)},
          {"draft_n", t.draft_n},
          {"draft_n_accepted", t.draft_n_accepted}};
}

OrderedJson SpeculationJson(const SpeculativeStats& stats) {
  OrderedJson json = {{"type", stats.type},
                      {"rounds", stats.steps},
                      {"mean_acceptance_length", stats.mean_acceptance_length},
                      {"by_drafter", OrderedJson::array()}};
  for (const AcceptanceCounts& counts : stats.by_drafter) {
    json["by_drafter"].push_back(
        {{"name", counts.name}, {"drafted", counts.drafted}, {"accepted", counts.accepted}});
  }
  if (!stats.notice.empty()) json["notice"] = stats.notice;
  return json;
}

OrderedJson ChunkJson(Endpoint endpoint, const ResponseHead& head) {
  const bool chat = endpoint == Endpoint::kChatCompletions;
  OrderedJson chunk = {{"id", (chat ? "chatcmpl-" : "cmpl-") + head.id},
                       {"object", chat ? "chat.completion.chunk" : "text_completion"},
                       {"created", head.created},
                       {"model", head.model}};
  if (!head.fingerprint.empty()) chunk["system_fingerprint"] = head.fingerprint;
  chunk["choices"] = OrderedJson::array();
  return chunk;
}

OrderedJson FirstChoiceJson(int index) {
  return {{"index", index},
          {"delta", {{"role", "assistant"}, {"content", nullptr}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

OrderedJson PieceChoiceJson(Endpoint endpoint, int index, std::string_view text,
                            std::span<const TokenReport> tokens, const Shown& shown) {
  OrderedJson choice;
  if (endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["delta"] = {{"content", text}};
  } else {
    choice["text"] = text;
    choice["index"] = index;
  }
  choice["logprobs"] = LogprobsJson(endpoint, tokens, shown);
  choice["finish_reason"] = nullptr;
  AddTokens(tokens, shown, choice);
  return choice;
}

OrderedJson LastChoiceJson(Endpoint endpoint, int index, FinishReason reason) {
  OrderedJson choice;
  if (endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["delta"] = OrderedJson::object();
  } else {
    choice["text"] = "";
    choice["index"] = index;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishReasonName(reason);
  return choice;
}

OrderedJson ResponseJson(Endpoint endpoint, const ResponseHead& head, std::span<const Answer> answers,
                         const Shown& shown) {
  LS_CHECK(!answers.empty());
  OrderedJson response = ChunkJson(endpoint, head);
  if (endpoint == Endpoint::kChatCompletions) response["object"] = "chat.completion";
  OrderedJson& choices = response["choices"];
  for (size_t i = 0; i < answers.size(); ++i) choices.push_back(ChoiceJson(endpoint, i, answers[i], shown));
  response["usage"] = UsageJson(answers, shown.n);
  response["seed"] = answers.front().result.seed;
  if (answers.size() == 1) response["timings"] = TimingsJson(answers.front().result.timings);
  return response;
}

}  // namespace longspec::openai
